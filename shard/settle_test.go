package shard_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/shard"
	"github.com/stretchr/testify/require"
)

// TestReservationsOfSpreadKeys: a settlement corrects the sub-key that was charged,
// and what it gives back can be taken at once. A record charges one of them.
func TestReservationsOfSpreadKeys(t *testing.T) {
	ctx := context.Background()
	for _, a := range []algo.Algorithm{algo.SlidingLog(algo.PerDay(40)), algo.FixedWindow(algo.PerDay(40))} {
		s, now := over(t)
		now.Store(1_745_000_000_000_000)
		list := []backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailClosed, Shards: 4}}
		ask := func(op backend.Op, g backend.Group, l *backend.Lease) (backend.Decision, error) {
			g.Key, g.Policies = "k", list
			return layer.Ask(ctx, s, backend.Request{Op: op, Group: g, Lease: l})
		}
		used := func() int64 {
			d, err := ask(backend.Peek, backend.Group{Cost: 1}, nil)
			require.NoError(t, err)
			return d.Used
		}
		var subs []string
		for i := range 8 {
			receipt := &backend.Receipt{}
			d, err := ask(backend.Reserve, backend.Group{Cost: 5, Receipt: receipt}, &backend.Lease{ID: backend.LeaseID{byte(i + 1)}, Length: time.Minute})
			require.NoError(t, err)
			require.True(t, d.Allowed, "%d", i)
			require.NotEmpty(t, receipt.Sub)
			subs = append(subs, receipt.Sub)
		}
		require.EqualValues(t, 40, used())
		for i := range 8 {
			d, err := ask(backend.Reserve, backend.Group{Cost: 1}, &backend.Lease{ID: backend.LeaseID{99}, Length: time.Minute})
			require.NoError(t, err)
			require.False(t, d.Allowed)

			l := &backend.Lease{ID: backend.LeaseID{byte(i + 1)}, Length: time.Minute, Actual: []int64{2}, Attempt: backend.LeaseID{1}}
			_, err = ask(backend.Settle, backend.Group{}, l)
			require.ErrorAs(t, err, new(*backend.InvalidError))
			_, err = ask(backend.Settle, backend.Group{Sub: subs[i]}, l)
			require.NoError(t, err)
			d, err = ask(backend.Take, backend.Group{Cost: 3}, nil)
			require.NoError(t, err)
			require.True(t, d.Allowed, fmt.Sprint(i))
			require.EqualValues(t, 40, used())
		}
		d, err := ask(backend.Record, backend.Group{Cost: 25}, nil)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.EqualValues(t, 65, used())
		slots := []backend.Policy{{Name: "p", Algorithm: algo.InFlight(9), OnFailure: backend.FailClosed, Shards: 4}}
		var invalid *backend.InvalidError
		require.ErrorAs(t, s.Check(slots), &invalid)
		require.Equal(t, 4, invalid.Value)
	}
}

// TestExcessOfSpreadKeys: what was used above the estimate goes to sub-keys with room
// first. So the rest of the limit is what is left of it, and the excess is charged once.
func TestExcessOfSpreadKeys(t *testing.T) {
	s, _ := over(t)
	list := append(one(algo.SlidingLog(algo.PerDay(100)), 4), backend.Policy{
		Name: "q", Algorithm: algo.FixedWindow(algo.PerDay(200)), OnFailure: backend.FailClosed, Shards: 4})
	receipt := &backend.Receipt{}
	g := backend.Group{Key: "k", Policies: list, Costs: []int64{10, 20}, Receipt: receipt}
	r := backend.Request{Op: backend.Reserve, Group: g, Lease: &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute}}
	require.True(t, do(t, s, r).Allowed)
	used := func(key string) [2]int64 {
		each := make([]backend.State, 2)
		q := peek(key, list, 0)
		q.Each = each
		do(t, s, q)
		return [2]int64{each[0].Used, each[1].Used}
	}
	settle := backend.Request{Op: backend.Settle, Group: backend.Group{Key: "k", Sub: receipt.Sub, Policies: list, Costs: g.Costs},
		Lease: &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute, Actual: []int64{90, 30}, Attempt: backend.LeaseID{2}}}
	require.True(t, do(t, s, settle).Allowed)
	require.Equal(t, [2]int64{90, 30}, used("k"))
	second := *settle.Lease
	second.Attempt = backend.LeaseID{3}
	settle.Lease = &second
	_, err := layer.Ask(context.Background(), s, settle)
	require.ErrorIs(t, err, backend.ErrNotHeld)
	for range 10 {
		require.True(t, do(t, s, take("k", list, 1)).Allowed, "no sub-key holds more than its share")
	}
	require.False(t, do(t, s, take("k", list, 1)).Allowed)
	require.Equal(t, [2]int64{100, 40}, used("k"))

	r.Key, r.Lease = "over", &backend.Lease{ID: backend.LeaseID{4}, Length: time.Minute}
	require.True(t, do(t, s, r).Allowed)
	above := *settle.Lease
	above.ID, above.Actual = r.Lease.ID, []int64{130, 20}
	settle.Key, settle.Sub, settle.Lease = "over", receipt.Sub, &above
	require.True(t, do(t, s, settle).Allowed)
	require.Equal(t, [2]int64{130, 20}, used("over"))
	require.False(t, do(t, s, take("over", list, 1)).Allowed)
}

// TestAtMostKeepsTheLimit: callers that ask for more than there is get all of it and no
// more.
func TestAtMostKeepsTheLimit(t *testing.T) {
	s, _ := over(t)
	list := one(algo.FixedWindow(algo.PerDay(1003)), 16)
	var granted atomic.Int64
	faulttest.Go(8, func(int) {
		for {
			d, err := layer.Ask(context.Background(), s, backend.Request{Op: backend.AtMost, Group: backend.Group{Key: "k", Policies: list, Cost: 70}})
			if err != nil {
				t.Error(err)
			}
			if granted.Add(d.Granted); err != nil || !d.Allowed {
				return
			}
		}
	})()
	require.EqualValues(t, 1003, granted.Load())
	require.EqualValues(t, 1003, do(t, s, peek("k", list, 0)).Used)
}

// deaf does not answer for one sub-key.
type deaf struct {
	backend.Store
	sub *string
}

func (s deaf) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if r.Sub == *s.sub {
		return backend.ErrUnavailable
	}
	return s.Store.Do(ctx, r, d)
}

// TestAtMostOfADeadShare: what the others have is granted, and the failure of the rest is
// told to the next call.
func TestAtMostOfADeadShare(t *testing.T) {
	dead := ""
	next := deaf{memory.New(nil), &dead}
	s := shard.New(plain{next}, next)
	list := one(algo.FixedWindow(algo.PerDay(40)), 4)
	receipt := &backend.Receipt{}
	r := take("k", list, 10)
	r.Receipt = receipt
	do(t, s, r)
	dead = receipt.Sub
	r = take("k", list, 100)
	r.Op = backend.AtMost
	require.EqualValues(t, 30, do(t, s, r).Granted)
	_, err := layer.Ask(context.Background(), s, r)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	dead = ""
	require.EqualValues(t, 40, do(t, s, peek("k", list, 0)).Used)
}

// dead are sub-keys that do not answer.
type dead struct {
	*memory.Store
	subs map[string]bool
}

func (s dead) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if s.subs[r.Sub] {
		return backend.ErrUnavailable
	}
	return s.Store.Do(ctx, r, d)
}

// TestRecordsOfDeadShares: a record and an excess are charged to a share that answers,
// also where it has no room.
func TestRecordsOfDeadShares(t *testing.T) {
	next := dead{memory.New(nil), map[string]bool{}}
	s := shard.New(plain{next}, next)
	list := one(algo.FixedWindow(algo.PerDay(40)), 4)
	for i := range 50 {
		receipt := &backend.Receipt{}
		r := take(fmt.Sprint("k", i), list, 10)
		r.Op, r.Receipt, r.Lease = backend.Reserve, receipt, &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute}
		require.True(t, do(t, s, r).Allowed)
		for _, sub := range shard.Names(r.Key, 4) {
			next.subs[sub] = sub != receipt.Sub
		}
		r.Op, r.Cost, r.Sub, r.Lease = backend.Settle, 0, receipt.Sub, &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute, Actual: []int64{15}}
		r.Costs = []int64{10}
		do(t, s, r)
		record := take(r.Key, list, 20)
		record.Op = backend.Record
		do(t, s, record)
		clear(next.subs)
		require.EqualValues(t, 35, do(t, s, peek(r.Key, list, 0)).Used, r.Key)
	}
}

// TestGivenBackShowsInEveryList: what a settlement by one list gives back is there for
// another list with the same count, which has just been denied.
func TestGivenBackShowsInEveryList(t *testing.T) {
	s, _ := over(t)
	log := backend.Policy{Name: "p", Algorithm: algo.SlidingLog(algo.PerDay(40)), OnFailure: backend.FailClosed, Shards: 4}
	shadow := backend.Policy{Name: "s", Algorithm: algo.FixedWindow(algo.PerDay(1000)), OnFailure: backend.FailOpen, Shards: 4, Shadow: true}
	own, other := []backend.Policy{log}, []backend.Policy{shadow, log}
	var subs []string
	for i := range 8 {
		r := backend.Request{Op: backend.Reserve, Lease: &backend.Lease{ID: backend.LeaseID{byte(i + 1)}, Length: time.Minute}}
		r.Group = backend.Group{Key: "k", Policies: own, Cost: 5, Receipt: new(backend.Receipt)}
		require.True(t, do(t, s, r).Allowed)
		subs = append(subs, r.Receipt.Sub)
	}
	for i, sub := range subs {
		require.False(t, do(t, s, take("k", other, 1)).Allowed)
		r := backend.Request{Op: backend.Settle, Lease: &backend.Lease{ID: backend.LeaseID{byte(i + 1)}, Length: time.Minute, Actual: []int64{2}, Attempt: backend.LeaseID{1}}}
		r.Group = backend.Group{Key: "k", Sub: sub, Policies: own}
		do(t, s, r)
		require.True(t, do(t, s, take("k", other, 3)).Allowed)
	}
}

// TestASettlementConcernsItsShare: after units came back to one of 16 shares, a spent key
// costs a request for that share, and none for the others.
func TestASettlementConcernsItsShare(t *testing.T) {
	s, c, _ := counting(t)
	list := []backend.Policy{{Name: "p", Algorithm: algo.SlidingLog(algo.PerDay(160)), OnFailure: backend.FailClosed, Shards: 16}}
	var first backend.Request
	for i := range 16 {
		r := backend.Request{Op: backend.Reserve, Lease: &backend.Lease{ID: backend.LeaseID{byte(i + 1)}, Length: time.Minute}}
		r.Group = backend.Group{Key: "k", Policies: list, Cost: 10, Receipt: new(backend.Receipt)}
		require.True(t, do(t, s, r).Allowed)
		if i == 0 {
			first = r
		}
	}
	require.False(t, do(t, s, take("k", list, 1)).Allowed)
	settle := backend.Request{Op: backend.Settle, Lease: &backend.Lease{ID: first.Lease.ID, Length: time.Minute, Actual: []int64{9}, Attempt: backend.LeaseID{1}}}
	settle.Group = backend.Group{Key: "k", Sub: first.Receipt.Sub, Policies: list}
	do(t, s, settle)
	c.asked.Store(0)
	require.True(t, do(t, s, take("k", list, 1)).Allowed)
	require.False(t, do(t, s, take("k", list, 1)).Allowed)
	require.LessOrEqual(t, c.asked.Load(), int64(2))
}
