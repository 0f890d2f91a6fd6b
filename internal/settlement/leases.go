package settlement

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// Leases are those of a call on several keys.
type Leases []*Lease

// Keep keeps the leases of a First that has passed: those of the alternative that was charged, and
// those of others that may be. One request settles them then. The others become empty. Of an
// alternative that costs nothing no store has any.
func (ls Leases) Keep(r *backend.Request, at int) {
	var kept []*Lease
	others, part := false, 0
	from, to := r.Alternative(at)
	for i, l := range ls {
		if r.GroupAt(i).Else {
			part++
		}
		l.part = part
		switch own := i >= from && i < to; {
		//mutant:other-parts-hold-nothing
		case !own && !l.Asked.Unresolved:
			*l = Lease{}
		case !l.nothing:
			kept, others = append(kept, l), others || !own
		}
	}
	for _, l := range kept {
		//mutant:unresolved-parts-kept
		if others {
			l.set = kept[0].set
			l.set.leases = kept
		}
	}
}

// Commit settles by a list of units for each lease, or by the estimates if there are no lists, and
// fills the states of each. What the same Commit has settled before stays settled, with zero
// states. If one list does not fit, nothing is sent.
func (ls Leases) Commit(ctx context.Context, each [][]backend.State, actual [][]int64) error {
	if i, err := ls.check(each, actual); err != nil {
		for _, l := range ls {
			if l.Held() {
				l.set.refuse()
			}
		}
		if len(ls) == 0 {
			return err
		}
		return ls[i].refused(backend.Settle, err)
	}
	for _, states := range each {
		clear(states)
	}
	return ls.sets(func(l *Lease) error {
		units := func(m *Lease) []int64 { return m.units(of(actual, ls, m)) }
		//mutant:commit-of-keys-repeated
		if l.set.wonBy(l.set.used(units)) {
			return nil
		}
		l = l.set.leases[0]
		return l.commit(ctx, of(each, ls, l), units)
	})
}

// of returns the lease's list; nil if it has none.
func of[T any](lists [][]T, ls Leases, l *Lease) []T {
	if i := slices.Index(ls, l); i >= 0 && len(lists) > 0 {
		return lists[i]
	}
	return nil
}

// check refuses lists of a Commit that do not fit the leases. It returns the index of the one
// that refuses.
func (ls Leases) check(each [][]backend.State, actual [][]int64) (i int, err error) {
	err = cmp.Or(ls.fits("lists of actual costs", len(actual)), ls.fits("lists of states", len(each)))
	if err != nil {
		return 0, err
	}
	for i, l := range ls {
		if !l.Held() {
			continue
		}
		//mutant:lists-checked-before-sent
		if err := l.check(of(each, ls, l), of(actual, ls, l)); err != nil {
			return i, err
		}
	}
	return 0, nil
}

// fits refuses a number of lists that is not that of the keys.
func (ls Leases) fits(what string, n int) error {
	if n == 0 || n == len(ls) {
		return nil
	}
	return &backend.InvalidError{What: what, Value: n, Want: fmt.Sprintf("none, or one for each of %d keys", len(ls))}
}

// check returns the error of a Commit with these lists, before anything is sent.
func (l *Lease) check(each []backend.State, actual []int64) (err error) {
	q := backend.Request{Op: backend.Settle, Group: backend.Group{Lease: l.asked(), Key: l.Group.Key, Policies: l.Group.Policies}}
	if q.Lease.Actual, err = l.lists(each, actual); err != nil {
		return err
	}
	if l.At == nil {
		q.Each = each
	}
	return l.Limiter.CheckRequest(context.Background(), &q)
}

// Cancel gives all back.
func (ls Leases) Cancel(ctx context.Context) error {
	return ls.sets(func(l *Lease) error { return l.Cancel(ctx) })
}

// Close cancels what was not settled.
func (ls Leases) Close() error { return ls.sets((*Lease).Close) }

// Extend extends each lease.
func (ls Leases) Extend(ctx context.Context) error {
	return ls.each(func(i int) error {
		if !ls[i].Held() { // of a part that was not charged
			return nil
		}
		return ls[i].Extend(ctx)
	})
}

// sets does f for the first listed lease of each set.
func (ls Leases) sets(f func(*Lease) error) error {
	return ls.each(func(i int) error {
		l := ls[i]
		same := func(m *Lease) bool { return m.Held() && m.set == l.set }
		if !l.Held() || slices.IndexFunc(ls, same) != i {
			return nil
		}
		return f(l)
	})
}

// each does f for all indexes in parallel, and returns the first's error.
func (ls Leases) each(f func(i int) error) error {
	errs := make([]error, len(ls))
	layer.Parallel(len(ls), func(i int) { errs[i] = f(i) })
	return cmp.Or(errs...)
}
