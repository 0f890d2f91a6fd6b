package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/headgate-go/headgate"
)

// reset deletes what the policies of the file count of a key, or all that is
// stored of it. It looks first, so that what is printed can be given back by
// hand. A count that can't be read is reset all the same: this is how a damaged
// one is removed.
func reset(ctx context.Context, s *session, args []string) error {
	if err := s.wantsPolicies(); err != nil {
		return err
	}
	if s.policies == "" {
		return s.resetStored(ctx, args[0])
	}
	list, key, err := s.list(args[0])
	//mutant:reset-without-limits
	if uncounted(err) {
		s.noteRest(args[0])
		none := cleared{Key: callerKey(args[0]), Policies: []string{}, Used: map[string]int64{}}
		return s.print(none, none.text)
	}
	if err != nil {
		return err
	}
	l, err := s.limiter(ctx, list)
	if err != nil {
		return err
	}
	return s.resetCounts(ctx, l, key)
}

// resetCounts resets what the limiter counts of the key.
func (s *session) resetCounts(ctx context.Context, l *headgate.Limiter, key string) error {
	before, unread := look(ctx, l, key, make([]int64, len(l.Policies())))
	if err := l.Reset(ctx, key); err != nil {
		return err
	}
	done := cleared{Key: callerKey(key), Policies: []string{}, Used: map[string]int64{}}
	for _, p := range l.Policies() {
		done.Policies = append(done.Policies, p.Name)
	}
	for _, p := range before.Policies {
		done.Used[p.Policy] = p.Used
	}
	if unread != nil { // as of a damaged count, which a reset mends
		done.Unread = explain("peek", unread)
	}
	s.noteRest(key)
	return s.print(done, done.text)
}

// noteRest names the counts per dimension, which have keys of their own and remain.
func (s *session) noteRest(key string) {
	per := dimensionsOf(s.unasked)
	if s.of != "" || len(per) == 0 {
		return
	}
	flags := "-policies " + quoted(s.policies)
	for name, value := range map[string]string{"-plan": s.plan, "-tenant": s.tenant} { // one of them
		if value != "" {
			flags += " " + name + " " + quoted(value)
		}
	}
	for _, d := range per {
		fmt.Fprintf(s.notes, "note: counts per %s remain: headgate keys %s lists them, headgate reset %s -of %s=VALUE %s resets one\n",
			printable(d), word(key+":"+headgate.Key(d)+":"), flags, quoted(d), word(callerKey(key).arg()))
	}
	fmt.Fprintln(s.notes, "note: a key with spaces, braces or more than 64 bytes is stored as a hash: keys can't list its value")
}

// cleared is what reset prints of the policies of the file. It names every
// policy, also those of which nothing was used.
type cleared struct {
	Key      callerKey        `json:"key"`
	Policies []string         `json:"reset"`
	Used     map[string]int64 `json:"used"`             // before, by policy
	Unread   string           `json:"unread,omitempty"` // why that is not known
}

// cachedDenials follows each reset. Headgate denies from memory for at most 1 s,
// and no other process can end that.
const cachedDenials = "a process that has denied the key may deny it from its deny cache for up to 1 s more"

// text tells how much was used before, in the order of the file's policies.
func (c *cleared) text(w *tabwriter.Writer) {
	if len(c.Policies) == 0 {
		fmt.Fprintf(w, "nothing was reset: no policy of the file counts %s; without -policies all that is stored of it is reset\n", printable(string(c.Key)))
		return
	}
	defer fmt.Fprintln(w, cachedDenials)
	fmt.Fprintf(w, "%s was reset for the policies of the file:\n", printable(string(c.Key)))
	if c.Unread != "" {
		fmt.Fprintln(w, "  how much was used could not be read:", c.Unread)
		return
	}
	for _, name := range c.Policies {
		if used := c.Used[name]; used > 0 {
			fmt.Fprintf(w, "  %s: %d units had been used\n", name, used)
		} else {
			fmt.Fprintf(w, "  %s: nothing had been used\n", name)
		}
	}
}
