package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
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
	Fullest []full    `json:"fullest"`
}

// full is a key with its fullest policy.
type full struct {
	Key     string  `json:"key"`
	Percent float64 `json:"percent"`
	state
}

// top prints the fullest keys of those that it has read so far, again and
// again. All keys are measured by one list of policies, the plan's or tenant's
// of the flags. An interrupt ends it without an error.
func top(ctx context.Context, s *session, _ []string) error {
	if s.policies == "" {
		return errors.New("top: want -policies FILE: limits are not stored, and fullness is a share of them")
	}
	list, err := s.list()
	if err != nil {
		return err
	}
	l, err := s.limiter(ctx, list)
	if err != nil {
		return err
	}
	r := reader{store: s.store}
	defer r.close()
	var t topped
	for {
		if err := t.refresh(ctx, s, l, &r); err != nil {
			return ended(ctx, err)
		}
		s.clear()
		if err := s.print(t, t.text); err != nil || s.every <= 0 {
			return err
		}
		select {
		case <-time.After(s.every):
		case <-ctx.Done():
			return nil
		}
	}
}

// ended returns no error where the user has ended the command.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// refresh reads -sample more keys, and asks for those and for the fullest so
// far. Keys that are neither are dropped, so the memory of a long run is
// bounded.
func (t *topped) refresh(ctx context.Context, s *session, l *headgate.Limiter, r *reader) error {
	keys := map[string]bool{}
	for _, f := range t.Fullest {
		keys[f.Key] = true
	}
	for range s.sample {
		k, more, err := r.next(ctx)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if t.Read++; k.Key == "" {
			t.Hashed++
			continue
		}
		keys[k.Key] = true
	}
	t.Time = time.Now()
	list, corrupt, err := fullest(ctx, l, keys, s.rows)
	t.Fullest, t.Corrupt = list, t.Corrupt+corrupt
	return err
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

// fullest returns the n fullest keys, without those that nothing is used of, and
// how many keys are corrupt. Equal ones are in the order of their names, so that a
// list at rest does not flicker.
func fullest(ctx context.Context, l *headgate.Limiter, keys map[string]bool, n int) (all []full, corrupt int, err error) {
	all, costs := make([]full, 0, len(keys)), make([]int64, len(l.Policies()))
	answers := make(chan full, len(keys))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(asked)
	for key := range keys {
		group.Go(func() error {
			p, err := look(ctx, l, key, costs)
			if errors.As(err, new(*headgate.CorruptError)) {
				err = nil // p is zero: it has no key
			}
			if err == nil {
				answers <- p.fullest()
			}
			return err
		})
	}
	err = group.Wait()
	close(answers)
	for f := range answers {
		switch {
		case f.Key == "":
			corrupt++
		case f.Used > 0:
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b full) int {
		return cmp.Or(cmp.Compare(b.Percent, a.Percent), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(n, len(all))], corrupt, err
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
	fmt.Fprintf(w, "%s  keys read: %d, of which stored as a hash only: %d, corrupt: %d\n",
		t.Time.Format(time.TimeOnly), t.Read, t.Hashed, t.Corrupt)
	row(w, "FULL", "KEY", "POLICY", "USED", "LIMIT", "RESET AFTER")
	for _, f := range t.Fullest {
		row(w, fmt.Sprintf("%.1f%%", f.Percent), printable(f.Key), f.name(), f.Used, f.Limit, f.State.ResetAfter.Round(time.Millisecond))
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
