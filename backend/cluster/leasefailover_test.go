package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/stretchr/testify/require"
)

// TestLeasesAfterAFailover: a primary dies before its replica has its last writes. A
// lease and its charge are kept or lost together, and a Commit that is lost leaves
// the estimate.
func TestLeasesAfterAFailover(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	victim := c.Primary(0)
	replica := c.Replica(victim)
	store := open(c.Addrs(), patient)
	defer store.Close()
	var keys []*failedOver
	for _, list := range failoverLists() {
		keys = append(keys, &failedOver{T: t, l: faulttest.Limiter(t, store, list...), key: ownKey(len(keys))})
	}
	for _, k := range keys {
		k.kept, k.settled = k.reserve(), k.reserve()
	}
	require.EqualValues(t, 1, command(victim, "WAIT", 1, 20_000).Val())
	replica.Stop()
	require.NoError(t, command(victim, "CLIENT", "KILL", "TYPE", "replica").Err())
	for _, k := range keys {
		k.lost = k.reserve()
		require.NoError(t, k.commit(k.settled))
		k.holds(2, 40+25+40)
	}
	victim.Kill()
	replica.Cont()
	promote(t, replica, "TAKEOVER")
	c.Promoted(t, 0, victim)
	for _, k := range keys {
		t.Run(k.name(), func(t *testing.T) { k.T = t; k.after() })
	}
	c.NoImmortals(t)
}

// failoverLists has each algorithm alone, and several together.
func failoverLists() (lists [][]headgate.Policy) {
	l := algo.PerDay(200)
	var all []headgate.Policy
	for i, a := range []algo.Algorithm{
		algo.TokenBucket(algo.PerDay(1), 200), algo.SlidingLog(l), algo.CompactLog(l), algo.FixedWindow(l), algo.SlidingWindow(l),
		algo.BucketedWindow(l, 10), algo.Calendar(200, algo.Month(1), time.UTC), algo.InFlight(9),
	} {
		all = append(all, headgate.Policy{Name: fmt.Sprint("p", i), Algorithm: a, OnFailure: headgate.FailClosed})
		lists = append(lists, all[i:])
	}
	for i := range lists {
		lists[i] = lists[i][:1:1]
	}
	return append(lists, all[:3], []headgate.Policy{all[1], all[3], all[7]})
}

// ownKey returns the n-th key of the node that has slot 0.
func ownKey(n int) string {
	for i := 0; ; i++ {
		if k := fmt.Sprint("key", i); slot.Of(k) < slot.Count/3-1 {
			if n--; n < 0 {
				return k
			}
		}
	}
}

// failedOver is a key with three reservations of 40 units, and of a slot where a
// policy is InFlight.
type failedOver struct {
	*testing.T
	l                   *headgate.Limiter
	key                 string
	kept, settled, lost *headgate.Reservation
}

// after is what holds on the new primary.
func (k *failedOver) after() {
	ctx := k.Context()
	require.Eventually(k, func() bool {
		d, err := k.l.Peek(ctx, headgate.Call{Key: k.key})
		return err == nil && d.Err == nil
	}, time.Minute, 20*time.Millisecond, "served again")
	k.holds(2, 80)
	require.ErrorIs(k, k.lost.Extend(ctx), headgate.ErrNotHeld)
	require.ErrorIs(k, k.commit(k.lost), headgate.ErrNotHeld, "its charge was lost too")
	require.ErrorIs(k, k.commit(k.settled), headgate.ErrNotHeld)
	k.holds(2, 80)
	require.NoError(k, k.kept.Extend(ctx))
	require.NoError(k, k.commit(k.kept))
	k.holds(1, 65)
	require.ErrorIs(k, k.commit(k.kept), headgate.ErrNotHeld)
	k.holds(1, 65)
}

func (k *failedOver) name() (s string) {
	for _, p := range k.l.Policies() {
		s += p.Algorithm.Kind().String() + " "
	}
	return s
}

// costs are n units of each policy, or a slot.
func (k *failedOver) costs(n int64) (all []int64) {
	for _, p := range k.l.Policies() {
		if p.Algorithm.Kind().Leased() {
			all = append(all, 1)
		} else {
			all = append(all, n)
		}
	}
	return all
}

func (k *failedOver) reserve() *headgate.Reservation {
	k.Helper()
	r, d, err := k.l.Reserve(k.Context(), headgate.Call{Key: k.key, Costs: k.costs(40), Lease: time.Hour})
	require.NoError(k, err)
	require.True(k, d.Allowed, d.Err)
	return r
}

func (k *failedOver) commit(r *headgate.Reservation) error {
	return r.Commit(k.Context(), k.costs(25)...)
}

// holds requires that a policy counts so many slots, or units.
func (k *failedOver) holds(slots, units int64) {
	k.Helper()
	each := make([]headgate.State, len(k.l.Policies()))
	_, err := k.l.Peek(k.Context(), headgate.Call{Key: k.key, Each: each})
	require.NoError(k, err)
	for i, p := range k.l.Policies() {
		want := units
		if p.Algorithm.Kind().Leased() {
			want = slots
		}
		require.Equal(k, want, each[i].Used, p.Name)
	}
}
