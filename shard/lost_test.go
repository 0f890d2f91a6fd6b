package shard_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/shard"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// set puts a fault on each n-th round trip to each node.
func (l *lines) set(f redistest.Fault, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.mu.of {
		p.Set(f.Every(n))
	}
}

// told is what callers were told.
type told struct{ passed, unknown atomic.Int64 }

func (n *told) note(t *testing.T, d backend.Decision, err error) {
	switch perhaps := errors.Is(d.Err, backend.ErrPerhapsCounted); {
	case err != nil:
		t.Error(err)
	case d.Allowed && d.Source == backend.FromStore:
		n.passed.Add(1)
	case perhaps:
		n.unknown.Add(1)
	case d.Allowed:
		t.Errorf("a take that no store decided says %+v", d)
	}
}

// inShares returns what a key's shares hold, by sub-key.
func inShares(t *testing.T, s backend.Store, key string, ps spreadList) map[string]backend.State {
	all := map[string]backend.State{}
	for i, sub := range shard.Names(key, ps.k) {
		part := []backend.Policy{{Name: ps.policies[0].Name, Algorithm: ps.policies[0].Algorithm.Part(int64(i), int64(ps.k))}}
		all[sub] = do(t, s, backend.Request{Op: backend.Peek, Group: backend.Group{Key: key, Sub: sub, Policies: part}}).State
	}
	return all
}

// TestLostReplies on a cluster, of one call in seven: the shares count no call
// twice, nor one that was not told so, and none passes more than its part.
func TestLostReplies(t *testing.T) {
	c := redistest.StartCluster(t)
	direct := open(c.Addrs(), &cluster.Options{Budget: longBudget})
	defer direct.Close()
	for _, alone := range []bool{false, true} {
		l := &lines{t: t}
		store := cluster.New(with{&redis.ClusterOptions{Addrs: c.Addrs(), Dialer: l.dial}}, &cluster.Options{Budget: longBudget, DisableBatching: alone})
		s := wrappers(store)
		for _, fault := range []redistest.Fault{redistest.ResetAfterRequest, redistest.HalfReply} {
			key, ps := fmt.Sprint(fault, alone), one(algo.FixedWindow(algo.Per(1603, algo.MaxPeriod/64)), 16)
			do(t, s, peek(key, ps, 0)) // connections are there
			l.set(fault, 7)
			n := lose(t, s, key, ps)
			l.set(redistest.Pass, 1)
			used := int64(0)
			for _, state := range inShares(t, direct, key, ps) {
				require.LessOrEqual(t, state.Used, state.Limit)
				used += state.Used
			}
			require.GreaterOrEqual(t, used, n.passed.Load())
			require.LessOrEqual(t, used, n.passed.Load()+n.unknown.Load())
			require.Greater(t, n.unknown.Load(), int64(20), "lost replies")
		}
		_ = store.Close()
	}
}

// lose takes twice the limit, from eight at once.
func lose(t *testing.T, s backend.Store, key string, ps spreadList) *told {
	n := new(told)
	faulttest.Go(8, func(int) {
		for range 400 {
			d, err := layer.Ask(context.Background(), s, take(key, ps, 1))
			n.note(t, d, err)
		}
	})()
	return n
}

// TestALostReplyEndsItsCall on a cluster where every reply is lost: one node
// runs it, once.
func TestALostReplyEndsItsCall(t *testing.T) {
	c := redistest.StartCluster(t)
	l := &lines{t: t}
	store := cluster.New(with{&redis.ClusterOptions{Addrs: c.Addrs(), Dialer: l.dial}}, &cluster.Options{Budget: longBudget})
	defer store.Close()
	s, ps := wrappers(store), one(algo.FixedWindow(algo.Per(1600, algo.MaxPeriod/64)), 16)
	for range 10 {
		before := do(t, s, peek("k", ps, 0)).Used
		c.ResetStats(t)
		l.set(redistest.ResetAfterRequest, 1)
		d := do(t, s, take("k", ps, 1))
		l.set(redistest.Pass, 1)
		require.ErrorIs(t, d.Err, backend.ErrPerhapsCounted)
		require.EqualValues(t, 1, c.CommandStats(t)["evalsha"].Calls)
		require.Equal(t, before+1, do(t, s, peek("k", ps, 0)).Used)
	}
}
