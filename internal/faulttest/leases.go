package faulttest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/stretchr/testify/require"
)

// LostLeases loses replies of every operation of a lease, in each way. Whatever is
// lost, what was used is charged once and the rest is given back once. A control
// that settles under another ID than it reserved by must fail. The stores decide
// through the network and past it.
func LostLeases(t *testing.T, through, direct backend.Store, network Network, budget time.Duration) {
	l := &lost{through: through, direct: direct, name: "lost"}
	l.run(t, network, budget)
	require.Zero(t, l.wrong.Load(), "of %d reservations", l.made.Load())
	require.Positive(t, l.unresolved.Load())
	control := &lost{through: through, direct: direct, name: "control", forgets: true}
	control.run(t, network, budget)
	require.Positive(t, control.wrong.Load(), "a control without IDs must count wrongly")
	t.Logf("%d reservations, %d without an answer, %d counted wrongly; without IDs %d", l.made.Load(), l.unresolved.Load(), l.wrong.Load(), control.wrong.Load())
}

// LoseReplies loses the reply of some round trips: swallowed for longer than the
// budget, cut, or reset. Each 33rd, in short tests each third.
func LoseReplies(network Network, budget time.Duration) (undo func()) {
	ways := []redistest.Fault{redistest.SwallowReply(budget * 3 / 2), redistest.ResetAfterRequest, redistest.HalfReply}
	var trips atomic.Int64
	network.Set(redistest.Draw(func() redistest.Fault {
		if trips.Add(1)%int64(redistest.Steps(3, 33)) != 0 {
			return redistest.Pass
		}
		return ways[rand.IntN(len(ways))]
	}))
	return func() { network.Set(redistest.Pass) }
}

// StopBriefly stops a server for 2 s, in short tests for 0.4 s. undo waits until it runs
// again.
func StopBriefly(server *redistest.Server) (undo func()) {
	server.Stop()
	awake := make(chan struct{})
	time.AfterFunc(time.Duration(redistest.Steps(400, 2000))*time.Millisecond, func() { server.Cont(); close(awake) })
	return func() { <-awake }
}

// lost is one run of reservations whose replies are lost.
type lost struct {
	through, direct         backend.Store
	name                    string
	forgets                 bool // settles by a new ID
	made, unresolved, wrong atomic.Int64
}

func (l *lost) run(t *testing.T, network Network, budget time.Duration) {
	defer LoseReplies(network, budget)()
	Go(Callers, func(c int) {
		for i := range redistest.Steps(8, 160) { // times three operations
			l.call(t, fmt.Sprint(l.name, "/", c, "/", i), uint64(c)<<32|uint64(i))
			time.Sleep(pace)
		}
	})()
}

var leasedLists = [][]backend.Policy{
	{{Name: "p", Algorithm: algo.TokenBucket(algo.PerDay(1), 100)}},
	{{Name: "p", Algorithm: algo.SlidingLog(algo.PerDay(100))}},
	{{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(100))}, {Name: "q", Algorithm: algo.BucketedWindow(algo.PerDay(100), 4)}},
}

const estimate = 40

// call reserves, extends and settles on a key of its own, and compares the count
// with what was used.
func (l *lost) call(t *testing.T, key string, n uint64) {
	list := leasedLists[n%3]
	lease := backend.Lease{Length: time.Minute, Attempt: backend.LeaseID{1}}
	binary.LittleEndian.PutUint64(lease.ID[:], n+1)
	ask := func(s backend.Store, op backend.Op) error {
		own := lease
		_, err := layer.Ask(context.Background(), s, backend.Request{
			Op: op, Lease: &own, Group: backend.Group{Key: key, Policies: list, Cost: estimate}})
		return err
	}
	l.made.Add(1)
	lease.Unresolved = ask(l.through, backend.Reserve) != nil
	if lease.Unresolved {
		l.unresolved.Add(1)
		if l.forgets {
			lease.ID[15] = 1
		}
	}
	_ = ask(l.through, backend.Extend)
	actual := max(0, int64(n%70)-10) // 0 cancels
	for range list {
		if actual > 0 {
			lease.Actual = append(lease.Actual, actual)
		}
	}
	if ask(l.through, backend.Settle) != nil {
		if err := ask(l.direct, backend.Settle); err != nil {
			t.Errorf("a Settle again: %v", err)
		}
	}
	l.look(t, key, list, actual)
}

func (l *lost) look(t *testing.T, key string, list []backend.Policy, actual int64) {
	each := make([]backend.State, len(list))
	d, err := layer.Ask(context.Background(), l.direct, backend.Request{
		Op: backend.Peek, Group: backend.Group{Key: key, Policies: list, Each: each}})
	if err != nil {
		t.Error(errors.Join(err, d.Err))
	}
	for i := range each {
		if each[i].Used != actual {
			l.wrong.Add(1)
			if !l.forgets {
				t.Errorf("%s: %v of %s are used, want %d", key, each[i].Used, each[i].Policy, actual)
			}
		}
	}
}
