package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"golang.org/x/sync/errgroup"
)

// topped is what one refresh of top prints. The first refreshes have read few
// keys, so Read tells how much of the server the list stands for.
type topped struct {
	Time    time.Time `json:"time"`
	Read    int       `json:"read"`    // keys in Redis so far
	Hashed  int       `json:"hashed"`  // those of them whose key can't be known
	Corrupt int       `json:"corrupt"` // keys left out, since their stored value is not Headgate's
	Unread  int       `json:"unread"`  // keys left out, since their node gave no answer
	Fullest []full    `json:"fullest"`
	Errors  []string  `json:"errors,omitempty"` // of nodes without an answer, which they name
}

// full is a key with its fullest policy.
type full struct {
	Key     callerKey `json:"key"`
	Percent float64   `json:"percent"`
	state             // if it is estimated, some sub-keys gave no answer: at least so much is used
}

// top prints the fullest keys of those that it has read so far, again and
// again. An interrupt ends it without an error. A stored key does not have its plan, so all
// keys are measured by the plan or tenant of the flags.
func top(ctx context.Context, s *session, _ []string) error {
	if s.page != "" {
		return topOfPage(ctx, s)
	}
	l, err := s.measuring(ctx)
	if err != nil {
		return err
	}
	r := reader{store: s.store}
	defer r.close()
	var t topped
	for {
		err := t.refresh(ctx, s, l, &r)
		switch {
		case ctx.Err() != nil: // the user has ended the command
			return nil
		case err != nil && len(t.Fullest) == 0:
			return err
		}
		s.clear()
		if failed := s.print(t, t.text); failed != nil || s.every == 0 {
			return errors.Join(failed, err)
		}
		if err != nil { // of some nodes: the others may go on
			fmt.Fprintln(s.notes, "note:", explain("top", err))
		}
		select {
		case <-time.After(s.every):
		case <-ctx.Done():
			return nil
		}
	}
}

// measuring returns the limiter that all keys are measured by.
func (s *session) measuring(ctx context.Context) (*headgate.Limiter, error) {
	if s.policies == "" {
		return nil, misuse{errors.New("top: want -policies FILE: limits are not stored, and fullness is a share of them")}
	}
	list, _, err := s.list("any")
	if uncounted(err) {
		return nil, misuse{errors.New("top: the file has no limits for these calls: no key can be full")}
	}
	if err != nil {
		return nil, err
	}
	if per := dimensionsOf(s.unasked); s.of == "" && len(per) > 0 {
		fmt.Fprintf(s.notes, "note: policies with per are left out: -of %s=VALUE is for them\n", strings.Join(per, "=VALUE or -of "))
	}
	return s.limiter(ctx, list)
}

// refresh reads -sample more keys, and asks for those and for the fullest so
// far. Keys that are neither are dropped, so the memory of a long run is
// bounded. An error is of some nodes, and leaves out only their keys.
func (t *topped) refresh(ctx context.Context, s *session, l *headgate.Limiter, r *reader) error {
	keys := map[string]bool{}
	for _, f := range t.Fullest {
		keys[string(f.Key)] = true
	}
	var dead []error
	for range s.sample {
		k, more, err := r.next(ctx)
		if !more {
			break
		}
		switch {
		case err != nil:
			dead = append(dead, err)
			continue
		case k.Key == "":
			t.Hashed++
		default:
			keys[k.Key] = true
		}
		t.Read++
	}
	t.Time = time.Now()
	t.Errors = nil
	failed := t.measure(ctx, s.store, l, keys, s.rows)
	if len(dead) > 0 { // they name the nodes
		failed = errors.Join(dead...)
	}
	if failed != nil {
		t.Errors = strings.Split(explain("top", failed), "\n")
	}
	return failed
}

// reader reads the keys of the store a few at a time, and begins anew after the
// last one. The iterator stays open between refreshes, since SCAN must go on
// where it stopped.
type reader struct {
	store interface {
		Keys(ctx context.Context, prefix string) iter.Seq2[backend.StoredKey, error]
	}
	pull func() (backend.StoredKey, error, bool)
	stop func()
}

func (r *reader) next(ctx context.Context) (k backend.StoredKey, more bool, err error) {
	if r.pull == nil {
		r.pull, r.stop = iter.Pull2(r.store.Keys(ctx, ""))
	}
	k, err, more = r.pull()
	if !more {
		r.close()
	}
	return k, more, err
}

// close stops the iterator, which holds a goroutine. The next call of next
// begins anew.
func (r *reader) close() {
	if r.stop != nil {
		r.stop()
	}
	r.pull, r.stop = nil, nil
}

// asked is how many keys are asked for at a time: enough for the store to batch.
const asked = 64

// answer is what measure gets of a key.
type answer struct {
	looked
	err     error
	missing error // of sub-keys
}

// measure finds the n fullest keys, without those that nothing is used of. Equal ones are
// in the order of their names, so that a list at rest does not flicker. Its error is one
// of those of the keys that could not be read, or could be read only in part.
func (t *topped) measure(ctx context.Context, store backend.Store, l *headgate.Limiter, keys map[string]bool, n int) (err error) {
	costs, answers := make([]int64, len(l.Policies())), make(chan answer, len(keys))
	var group errgroup.Group
	group.SetLimit(asked)
	for key := range keys {
		group.Go(func() error {
			a := answer{}
			//mutant:top-of-living-sub-keys
			if a.looked, a.err = look(ctx, l, key, costs); a.estimated() {
				a.missing = a.known(ctx, store, l)
			}
			answers <- a
			return nil
		})
	}
	_ = group.Wait()
	close(answers)
	t.Fullest, t.Unread = make([]full, 0, len(keys)), 0
	for a := range answers {
		switch f := a.fullest(); {
		case errors.As(a.err, new(*headgate.CorruptError)):
			t.Corrupt++
		case a.err != nil:
			err = a.err
			t.Unread++
		case f.Used > 0:
			t.Fullest = append(t.Fullest, f)
		case f.State.Known == backend.Estimated:
			t.Unread++
		}
		err = cmp.Or(err, a.missing)
	}
	slices.SortFunc(t.Fullest, func(a, b full) int {
		return cmp.Or(cmp.Compare(b.Percent, a.Percent), cmp.Compare(a.Key, b.Key))
	})
	t.Fullest = t.Fullest[:min(n, len(t.Fullest))]
	return err
}

// fullest returns the key with the policy of which the greatest part is used.
func (p *looked) fullest() full {
	f := full{Key: p.Key}
	for _, s := range p.Policies {
		if percent := 100 * float64(s.Used) / float64(s.Limit); f.Policy == "" || percent > f.Percent {
			f.Percent, f.state = percent, s
		}
	}
	return f
}

func (t *topped) text(w *tabwriter.Writer) {
	fmt.Fprintf(w, "%s  keys read: %d, of which stored as a hash only: %d, corrupt: %d, without an answer: %d\n",
		t.Time.Format(time.TimeOnly), t.Read, t.Hashed, t.Corrupt, t.Unread)
	row(w, "FULL", "KEY", "POLICY", "USED", "LIMIT", "RESET AFTER")
	for _, f := range t.Fullest {
		percent := fmt.Sprintf("%.1f%%", f.Percent)
		if f.State.Known == backend.Estimated {
			percent = "at least " + percent
		}
		row(w, percent, printable(string(f.Key)), f.name(), f.Used, f.Limit, f.State.ResetAfter.Round(time.Millisecond))
	}
}

// clear empties a terminal, so that each refresh stands where the last one did.
func (s *session) clear() {
	t, _ := s.out.(terminal)
	if f, ok := t.Writer.(*os.File); ok && !s.json && s.every > 0 {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			fmt.Fprint(f, "\x1b[H\x1b[2J")
		}
	}
}
