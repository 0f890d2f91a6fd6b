package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/layer"
)

// The memory store, whose leases the suite passes, with one mistake in each.
var wrongLeases = []wrong{
	{"reserves as a peek", "Reserve", leasing(func(r *backend.Request) {
		if r.Op == backend.Reserve {
			r.Op, r.Lease = backend.Peek, nil
		}
	})},
	{"gives back all", "Settle", settling(func(l *backend.Lease) { l.Actual = nil })},
	{"charges what was used at the settlement", "SettleLate", leasingBy(func(s backend.Store, r *backend.Request) error {
		if r.Op != backend.Settle || r.Lease.Actual == nil {
			return nil
		}
		actual := r.Lease.Actual
		r.Lease.Actual = nil
		_, err := layer.Ask(context.Background(), s, backend.Request{
			Op: backend.Record, Group: backend.Group{Key: r.Key, Policies: r.Policies, Costs: actual}})
		return err
	})},
	{"counts a bucket in a window", "SettleLevel", leasing(func(r *backend.Request) {
		list := []backend.Policy(nil)
		for _, p := range r.Policies {
			p.Algorithm = algo.FixedWindow(algo.PerDay(100))
			list = append(list, p)
		}
		r.Policies = list
	})},
	{"rounds a level up", "Refill", leasingBy(func(s backend.Store, r *backend.Request) error {
		if r.Op != backend.Reserve {
			return nil
		}
		_, err := layer.Ask(context.Background(), s, backend.Request{Op: backend.Record, Group: r.Group})
		return err
	})},
	{"answers a settlement by the states before it", "SettleEach", leasingBy(func(s backend.Store, r *backend.Request) error {
		if r.Op != backend.Settle || r.Each == nil {
			return nil
		}
		each := r.Each
		r.Each = nil
		_, err := layer.Ask(context.Background(), s, backend.Request{Op: backend.Peek, Group: backend.Group{Key: r.Key, Policies: r.Policies, Cost: 1, Each: each}})
		return err
	})},
	{"does not see a repeated attempt", "SettleOnce", settling(func(l *backend.Lease) { l.Attempt = backend.LeaseID{} })},
	{"keeps a late lease as any other", "LateLease", leasing(func(r *backend.Request) {
		if r.Op == backend.Reserve {
			r.Lease.Late = false
		}
	})},
	{"gives back what others wait behind", "QueueGivesBack", leasing(func(r *backend.Request) {
		list := append([]backend.Policy(nil), r.Policies...)
		if a := &list[0].Algorithm; a.Kind().Queues() {
			*a = algo.TokenBucket(a.Limit(), a.Max()+2)
		}
		r.Policies = list
	})},
	{"keeps a lease for half its time", "LeaseEnds", leasing(func(r *backend.Request) {
		if r.Op == backend.Reserve {
			r.Lease.Length /= 2
		}
	})},
	{"does not extend", "Extend", leasing(func(r *backend.Request) {
		if r.Op == backend.Extend {
			r.Lease.Length = time.Second
		}
	})},
	{"settles another key", "LeaseEnds", leasing(func(r *backend.Request) {
		if r.Op == backend.Reserve || r.Op == backend.Settle {
			r.Key = "one"
		}
	})},
	{"keeps leases through a reset", "LeaseReset", func(s *reference, u *Subject) {
		generation := map[string]string{}
		leasing(func(r *backend.Request) {
			switch r.Op {
			case backend.Reset:
				generation[r.Key] += "+"
			case backend.Settle:
			default:
				r.Key += generation[r.Key]
			}
		})(s, u)
	}},
	{"leaves no tombstone", "Unresolved", settling(func(l *backend.Lease) { l.Unresolved = false })},
	{"records what there is room for", "Record", leasing(func(r *backend.Request) {
		if r.Op == backend.Record {
			r.Op, r.Run, r.UpTo, r.Cost = backend.Take, r.Cost, true, 1
		}
	})},
	{"has one slot more", "InFlight", leasing(func(r *backend.Request) {
		list := append([]backend.Policy(nil), r.Policies...)
		if a := &list[0].Algorithm; a.Kind() == rule.KindInFlight {
			*a = a.WithMax(a.Max() + 1)
		}
		r.Policies = list
	})},
	{"charges the keys that have room", "AllOrNothing", leasingBy(func(s backend.Store, r *backend.Request) error {
		for i := range r.And {
			if _, err := layer.Ask(context.Background(), s, backend.Request{Op: r.Op, Group: r.And[i]}); err != nil {
				return err
			}
		}
		r.And = nil
		return nil
	})},
	{"takes the first two keys for all", "KeyBinds", leasing(func(r *backend.Request) { r.And = r.And[:min(1, len(r.And))] })},
	{"keeps the leases of several keys under other IDs", "ReserveAll", leasing(func(r *backend.Request) {
		if r.Op == backend.Reserve && len(r.And) > 0 {
			lease := *r.And[0].Lease
			lease.ID[15] ^= 1
			r.And[0].Lease = &lease
		}
	})},
	{"drops a key that is listed twice", "CountTwice", leasing(func(r *backend.Request) {
		if len(r.And) > 0 && r.And[len(r.And)-1].Key != r.Key {
			r.And = r.And[:1]
		} else if len(r.And) > 0 {
			r.And = nil
		}
	})},
	{"charges each alternative", "First", leasing(func(r *backend.Request) {
		for i := range r.And {
			r.And[i].Else = false
		}
	})},
	{"sends the first alternative only", "FirstSoonest", leasing(func(r *backend.Request) {
		if r.First() {
			r.And = nil
		}
	})},
	{"writes the states of each alternative", "FirstEach", leasing(func(r *backend.Request) {
		for i := range r.And {
			clear(r.And[i].Each)
		}
	})},
	{"settles the first alternative only", "FirstSettled", leasing(func(r *backend.Request) {
		if r.Op == backend.Settle {
			r.And = nil
		}
	})},
}

// leasing spoils the requests.
func leasing(f func(*backend.Request)) func(*reference, *Subject) {
	return leasingBy(func(_ backend.Store, r *backend.Request) error {
		f(r)
		return nil
	})
}

func settling(f func(*backend.Lease)) func(*reference, *Subject) {
	return leasing(func(r *backend.Request) {
		if r.Op == backend.Settle {
			f(r.Lease)
		}
	})
}

// leasingBy does something before the store does the request, which it may spoil.
func leasingBy(f func(backend.Store, *backend.Request) error) func(*reference, *Subject) {
	return func(s *reference, u *Subject) {
		store := memory.New(&memory.Options{Now: func() time.Time { return time.UnixMicro(s.now()) }})
		u.Expiries, u.Corrupt, u.LoseReply, u.Refuse = nil, nil, nil, nil
		u.Store = &handing{store, func(next backend.Store, ctx context.Context, r *backend.Request, d *backend.Decision) error {
			own := *r
			if r.Lease != nil {
				lease := *r.Lease
				own.Lease = &lease
			}
			if err := f(next, &own); err != nil {
				return err
			}
			return next.Do(ctx, &own, d)
		}}
	}
}

func TestWrongLeasesFail(t *testing.T) {
	fail(t, wrongLeases, leased, "^TestWrongLeaseChild$/^Contract$")
}

func TestWrongLeaseChild(t *testing.T) { Run(t, wrongHarness(t, wrongLeases)) }

func TestEachLeaseSentenceIsBrokenBySomeStore(t *testing.T) { breakAll(t, wrongLeases, leased) }
