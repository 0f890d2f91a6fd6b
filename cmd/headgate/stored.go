package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/adapter"
)

// lister is a store that lists its keys. The memory store is none: it lives in another process.
type lister interface {
	Keys(ctx context.Context, prefix string) iter.Seq2[backend.StoredKey, error]
}

// inspector is a store on Redis, which tells what its counts are of.
type inspector interface {
	Stored(ctx context.Context, key string) ([]backend.Stored, error)
	Leases(ctx context.Context, key string) ([]backend.StoredLease, error)
}

// kept is what is printed of a key without a policy file. Limits are not
// stored, so it has no limits.
type kept struct {
	Key     callerKey `json:"key"`
	Counts  []*count  `json:"counts"`
	Unknown []string  `json:"unknown,omitempty"` // names in Redis that this release does not know

	partly bool // some node, or some count, gave no answer
}

// count is what is stored of a policy: of the key, or of all its sub-keys. Two
// policies of one name are two counts where algorithm, period, buckets or
// shards differ, as after a deploy.
type count struct {
	counted
	Used       int64 `json:"used"`           // of a TokenBucket and a LeakyQueue the level when it was last charged
	Lent       int64 `json:"lent,omitempty"` // of these: units that processes hold in advance
	ResetAfter int64 `json:"reset_after_us,omitempty"`
}

// counted is whose count it is: all of a policy that is stored.
type counted struct {
	Policy    string `json:"policy"`
	Algorithm string `json:"algorithm"`
	Period    int64  `json:"period_us,omitempty"`
	Buckets   int64  `json:"buckets,omitempty"`
	Calendar  string `json:"calendar,omitempty"` // as "m15/Europe/Berlin"
	Shadow    bool   `json:"shadow,omitempty"`   // it denies nothing
	Shards    int    `json:"shards,omitempty"`   // over how many sub-keys the key is spread
	SubKeys   int    `json:"sub_keys,omitempty"` // how many of them have something stored

	identity rule.Identity
}

// peekStored prints what is stored of a key, whichever limiters counted it. It
// needs no policy file, since a stored name has all but the limit.
func (s *session) peekStored(ctx context.Context, key string) error {
	store, err := s.inspected(ctx)
	if err != nil {
		return err
	}
	k := kept{Key: callerKey(key), Counts: []*count{}}
	parts, err := store.Stored(ctx, key)
	for i := range parts {
		err = errors.Join(err, k.add(ctx, s.store, &parts[i]))
	}
	return s.printKept(&k, k.text, err)
}

// printKept prints what living nodes have, and returns the error of the others. It
// prints nothing where it has found nothing: another node may have it.
func (s *session) printKept(k *kept, text func(w *tabwriter.Writer), err error) error {
	k.partly = err != nil
	if k.partly && len(k.Counts)+len(k.Unknown) == 0 {
		return err
	}
	return errors.Join(s.print(k, text), err)
}

// add asks the store for the counts of one part, one policy at a time. A
// damaged one must not hide the others.
func (k *kept) add(ctx context.Context, s backend.Store, part *backend.Stored) error {
	k.Unknown = append(k.Unknown, part.Unknown...)
	var errs []error
	for i := range part.Policies {
		st, err := do(ctx, s, backend.Peek, string(k.Key), part, i)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c := k.count(&part.Policies[i], shards(part.Sub))
		c.Used += st.Used
		c.Lent += st.Lent
		if c.SubKeys++; !c.identity.Kind.Rates() { // its rate is not stored
			c.ResetAfter = max(c.ResetAfter, micros(st.ResetAfter))
		}
	}
	return errors.Join(errs...)
}

// do asks the store for one policy of a part of a key. It calls the store, not
// a Limiter, which chooses sub-keys itself.
func do(ctx context.Context, s backend.Store, op backend.Op, key string, part *backend.Stored, i int) (backend.State, error) {
	var d backend.Decision
	group := backend.Group{Key: key, Sub: part.Sub, Policies: part.Policies[i : i+1]}
	err := s.Do(ctx, &backend.Request{Op: op, Group: group}, &d)
	return d.State, err
}

// count returns the row of a policy, which the sub-keys of a key share. Rows
// keep the order in which they were found.
func (k *kept) count(p *backend.Policy, shards int) *count {
	id := p.Algorithm.Identity()
	for _, c := range k.Counts {
		if c.Policy == p.Name && c.Shadow == p.Shadow && c.identity == id && c.Shards == shards {
			return c
		}
	}
	c := &count{counted: counted{
		Policy: p.Name, Algorithm: id.Kind.String(), Period: id.Period, Buckets: id.Buckets, Calendar: id.Label,
		Shards: shards, Shadow: p.Shadow, identity: id,
	}}
	k.Counts = append(k.Counts, c)
	return c
}

// shards returns over how many sub-keys a key is spread that has one of that
// name: it begins with the number.
func shards(sub string) int {
	n, _ := strconv.Atoi(strings.TrimRight(sub, "@ABCDEFGHIJKLMNO"))
	return n
}

// otherKeys helps a reader who knows the client, and not the key that a
// middleware made of it.
const otherKeys = "headgate keys lists the stored keys; middleware/httplimit counts an address as ip:203.0.113.7 or ip:2001:db8:1:2::/64"

// text ends with what a reader may miss: limits are in no store.
func (k *kept) text(w *tabwriter.Writer) {
	if len(k.Counts)+len(k.Unknown) == 0 {
		fmt.Fprintf(w, "nothing is stored of %s\n%s\n", printable(string(k.Key)), otherKeys)
		return
	}
	fmt.Fprintln(w, printable(string(k.Key)))
	for _, c := range k.Counts {
		fmt.Fprintln(w, " ", c)
	}
	for _, name := range k.Unknown {
		fmt.Fprintf(w, "  not known to this release: %q\n", name)
	}
	fmt.Fprintln(w, "limits are not stored: with -policies FILE, peek prints what remains")
}

// String describes what is stored, and how much of it is lent.
func (c *count) String() string {
	if c.Lent > 0 {
		return c.used() + fmt.Sprintf("; processes hold %d of them in advance", c.Lent)
	}
	return c.used()
}

// used describes what counts. A TokenBucket's level is as of its last charge, since its
// rate, and so what has come back since, is not stored.
func (c *count) used() string {
	switch {
	case c.identity.Kind.Leased():
		return fmt.Sprintf("%v: calls running now: %d; the last of their leases ends in %v", &c.counted, c.Used, duration(c.ResetAfter))
	case c.identity.Kind.Rates():
		return fmt.Sprintf("%v: %d units used when it was last charged; they come back at the policy's rate", &c.counted, c.Used)
	}
	return fmt.Sprintf("%v: %d units used now, none in %v", &c.counted, c.Used, duration(c.ResetAfter))
}

// of reports whether a policy of the limiter counts there.
func (c *counted) of(l *headgate.Limiter) bool {
	return max(c.Shards, 1) == max(adapter.Of(l).Shards, 1) && slices.ContainsFunc(l.Policies(), func(p headgate.Policy) bool {
		return c.Policy == p.Name && c.Shadow == p.Shadow && c.identity == p.Algorithm.Identity()
	})
}

// String names the policy, as "client, SlidingWindow of 10s".
func (c *counted) String() string {
	var b strings.Builder
	b.WriteString(c.Policy)
	if c.Shadow {
		b.WriteString(" (shadow)")
	}
	fmt.Fprintf(&b, ", %s", c.Algorithm)
	if c.Period > 0 {
		fmt.Fprintf(&b, " of %v", duration(c.Period))
	}
	if c.Buckets > 0 {
		fmt.Fprintf(&b, " in %d buckets", c.Buckets)
	}
	if c.Calendar != "" {
		fmt.Fprintf(&b, " of %s", c.Calendar)
	}
	if c.Shards > 0 {
		fmt.Fprintf(&b, ", in %d of %d sub-keys", c.SubKeys, c.Shards)
	}
	return b.String()
}

// resetStored resets all that is stored of a key, whichever limiters counted
// it. Fields that this release can't read are left and listed: they may be a
// later release's.
func (s *session) resetStored(ctx context.Context, key string) error {
	store, err := s.inspected(ctx)
	if err != nil {
		return err
	}
	done := kept{Key: callerKey(key), Counts: []*count{}}
	parts, err := store.Stored(ctx, key)
	for i := range parts {
		done.Unknown = append(done.Unknown, parts[i].Unknown...)
		for j := range parts[i].Policies {
			if _, failed := do(ctx, s.store, backend.Reset, key, &parts[i], j); failed != nil {
				err = errors.Join(err, failed)
				continue
			}
			done.count(&parts[i].Policies[j], shards(parts[i].Sub)).SubKeys++
		}
	}
	return s.printKept(&done, done.resetText, err)
}

// resetText tells a reset that found nothing from one that worked, since a
// mistyped key is the usual reason.
func (k *kept) resetText(w *tabwriter.Writer) {
	switch {
	case len(k.Counts) == 0:
		fmt.Fprintf(w, "nothing was stored of %s that could be reset\n", printable(string(k.Key)))
	case k.partly:
		fmt.Fprintf(w, "%s was reset in part; counts deleted: %d\n%s\n", printable(string(k.Key)), len(k.Counts), cachedDenials)
	default:
		fmt.Fprintf(w, "%s was reset; counts deleted: %d\n%s\n", printable(string(k.Key)), len(k.Counts), cachedDenials)
	}
	for _, name := range k.Unknown {
		fmt.Fprintf(w, "left, since it is not known to this release: %q\n", name)
	}
}

// keys prints a line per key in Redis as it finds them: a server may have
// millions.
func keys(ctx context.Context, s *session, args []string) error {
	prefix := strings.Join(args, "")
	if err := s.connect(ctx); err != nil {
		return err
	}
	var dead []error
	listed := 0
	for k, err := range s.store.Keys(ctx, prefix) {
		if err != nil { // of one node
			dead = append(dead, err)
			continue
		}
		listed++
		line := struct {
			Key  callerKey `json:"key,omitempty"` // absent where only its hash is stored
			Sub  string    `json:"sub,omitempty"` // of a spread key
			Name string    `json:"name"`          // in Redis; a lease's ends with its ID, cut
		}{callerKey(k.Key), k.Sub, named(k)}
		if s.json {
			err = s.print(line, nil)
		} else {
			_, err = fmt.Fprintf(s.out, "%s\t%s\n", called(k), printable(line.Name))
		}
		if err != nil {
			return err
		}
	}
	//mutant:no-key-listed
	if listed == 0 && prefix != "" {
		fmt.Fprintln(s.notes, "note: no such key is listed; keys with spaces, braces or more than 64 bytes are stored as hashes, see headgate keys -h")
	}
	return errors.Join(dead...)
}

// named returns the name of a key in Redis, a lease's with its ID as leases prints it.
func named(k backend.StoredKey) string {
	if k.Lease == (backend.LeaseID{}) {
		return k.Name
	}
	return strings.TrimSuffix(k.Name, string(k.Lease[:])) + k.Lease.Short()
}

// called is how the caller calls a key, as far as that is stored. A shell reads it as a KEY.
func called(k backend.StoredKey) string {
	if k.Key == "" {
		return "(a hash)"
	}
	return word(callerKey(k.Key).arg())
}
