package shard_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/headgate-go/headgate/shard"
	"github.com/stretchr/testify/require"
)

// death is what a key met whose shares lost a primary.
type death struct {
	mode          string
	limit, passed int64 // passed: by the store
	before        int64 // of these, between the death and the promotion
	open, closed  int64 // decided by the mode
	unknown       int64 // of these, perhaps counted
}

// outage kills a primary at a third of a spread key's limit, under calls that
// go on until the whole limit has passed, and beyond.
func outage(t *testing.T, mode string) death {
	t.Helper()
	var args []string
	if redistest.Long() {
		args = redistest.Elections
	}
	c := redistest.StartCluster(t, args...)
	store := open(c.Addrs(), &cluster.Options{Budget: 500 * time.Millisecond})
	defer store.Close()
	s := wrappers(store)
	d := death{mode: mode, limit: 1500}
	ps := one(algo.FixedWindow(algo.Per(d.limit, algo.MaxPeriod/64)), 16)
	if mode == "open" {
		ps.policies[0].OnFailure = backend.FailOpen
	}
	unhurried := open(c.Addrs(), &cluster.Options{Budget: longBudget})
	for first := wrappers(unhurried); d.passed < d.limit/3; d.passed++ {
		require.True(t, do(t, first, take("tenant", ps, 1)).Allowed)
	}
	require.NoError(t, unhurried.Close())
	tag := slot.Tag("tenant", shard.Names("tenant", 16)[0])
	at := slot.Of(tag)
	victim := c.Primary(at)
	heir, admin := c.Replica(victim).Client(t), victim.Client(t)
	require.NoError(t, admin.Set(context.Background(), "{"+tag+"}", 1, time.Minute).Err())
	require.EqualValues(t, 1, admin.Wait(context.Background(), 1, 20*time.Second).Val(), "the replica has it all")
	var promoted atomic.Bool
	spent := make(chan struct{})
	victim.Kill()
	go func() {
		if !redistest.Long() { // else after the election
			<-spent
			if err := heir.Do(context.Background(), "CLUSTER", "FAILOVER", "TAKEOVER").Err(); err != nil {
				t.Error(err)
			}
		}
		c.Promoted(t, at, victim)
		promoted.Store(true)
	}()
	besiege(t, s, ps, &d, &promoted, sync.OnceFunc(func() { close(spent) }))
	used := do(t, s, peek("tenant", ps, 0))
	require.NoError(t, used.Err)
	require.Equal(t, d.limit, used.Used)
	return d
}

// besiege calls from eight at once until the limit has passed and the
// replica was promoted. It calls spent once the shares that live are.
func besiege(t *testing.T, s backend.Store, ps spreadList, d *death, promoted *atomic.Bool, spent func()) {
	var mu sync.Mutex
	end := time.Now().Add(time.Minute)
	defer spent()
	faulttest.Go(8, func(int) {
		for over := 0; over < 50 && time.Now().Before(end); {
			up := promoted.Load()
			answer, err := layer.Ask(context.Background(), s, take("tenant", ps, 1))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			d.note(&answer, up)
			if d.before >= d.limit/3 && d.open+d.closed >= 100 {
				spent()
			}
			if d.passed >= d.limit && up {
				over++
			}
			mu.Unlock()
			time.Sleep(2 * time.Millisecond)
		}
	})()
}

func (d *death) note(answer *backend.Decision, up bool) {
	switch {
	case answer.Source == backend.FromFailOpen:
		d.open++
	case answer.Source == backend.FromFailClosed:
		d.closed++
	case answer.Allowed:
		d.passed++
		if !up {
			d.before++
		}
	}
	if errors.Is(answer.Err, backend.ErrPerhapsCounted) {
		d.unknown++
	}
}

// TestPrimaryKilled: its shares are closed, or open, as the policy says, once
// the living ones are spent; after the promotion the whole limit passes, and
// never more of it by the store.
func TestPrimaryKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts clusters")
	}
	for _, mode := range []string{"closed", "open"} {
		t.Run(mode, func(t *testing.T) {
			d := outage(t, mode)
			t.Logf("%+v", d)
			require.Equal(t, d.limit, d.passed)
			require.GreaterOrEqual(t, d.before, d.limit/3, "the living shares go on: two thirds of what was left")
			if mode == "closed" {
				require.Zero(t, d.open)
				require.Positive(t, d.closed)
			} else {
				require.Zero(t, d.closed)
				require.Positive(t, d.open)
			}
		})
	}
}
