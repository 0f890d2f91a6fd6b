package standalone_test

import (
	"context"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// givenBack is a bucket on a server whose clock the test sets.
type givenBack struct {
	*testing.T
	client *redis.Client
	store  *standalone.Store
	now    int64
	list   []backend.Policy
}

func newGivenBack(t *testing.T) *givenBack {
	g := &givenBack{T: t, client: redistest.Start(t).Client(t), now: trace.Start}
	clock := clock.Client{Processor: g.client, Now: func() time.Time { return time.UnixMicro(g.now) }}
	g.store = standalone.New(clock, &standalone.Options{Budget: 10 * time.Second})
	g.list = []backend.Policy{{Name: "p", Algorithm: algo.TokenBucket(algo.PerSecond(100), 200)}}
	return g
}

// ask asks for n units, by a lease where id is not 0, and returns what is used then.
func (g *givenBack) ask(op backend.Op, id byte, n int64) int64 {
	r := backend.Request{Op: op, Group: backend.Group{Key: "k", Policies: g.list, Cost: n}}
	if id > 0 {
		r.Lease = &backend.Lease{ID: backend.LeaseID{id}, Length: time.Minute}
	}
	d, err := layer.Ask(context.Background(), g.store, r)
	require.NoError(g, err)
	require.True(g, d.Allowed)
	d, err = layer.Ask(context.Background(), g.store, backend.Request{Op: backend.Peek, Group: backend.Group{Key: "k", Policies: g.list}})
	require.NoError(g, err)
	return d.Used
}

// TestTakesAddToSum: takes add to the sum beside the level, and denied ones keep it.
func TestTakesAddToSum(t *testing.T) {
	g := newGivenBack(t)
	g.ask(backend.Reserve, 1, 100)
	g.ask(backend.Reserve, 2, 50)
	g.ask(backend.Settle, 1, 0)
	g.now += 100_000
	g.ask(backend.Take, 0, 20)
	g.list[0].Algorithm = algo.TokenBucket(algo.PerHour(1), 60) // for which the level lives longer
	_, err := layer.Ask(context.Background(), g.store, backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: g.list, Cost: 1}})
	require.NoError(t, err)
	g.list[0].Algorithm = algo.TokenBucket(algo.PerSecond(100), 200)
	require.EqualValues(t, 20, g.ask(backend.Settle, 2, 0))
}

// TestSumTooLarge: a sum that would pass what a script reckons exactly begins anew, and
// leases of before give nothing back.
func TestSumTooLarge(t *testing.T) {
	g := newGivenBack(t)
	g.ask(backend.Reserve, 1, 50)
	hash, field := names.DefaultPrefix.Hash(names.Tag("k", "")), "t/p"
	v, err := g.client.HGet(context.Background(), hash, field).Bytes()
	require.NoError(t, err)
	binary.LittleEndian.PutUint64(v[33:], math.Float64bits(1<<52))
	require.NoError(t, g.client.HSet(context.Background(), hash, field, v).Err())
	g.now++
	require.EqualValues(t, 60, g.ask(backend.Reserve, 2, 10))
	require.EqualValues(t, 60, g.ask(backend.Settle, 2, 0))
	g.now++
	require.EqualValues(t, 70, g.ask(backend.Reserve, 3, 10))
	require.EqualValues(t, 70, g.ask(backend.Settle, 1, 0))
	require.EqualValues(t, 60, g.ask(backend.Settle, 3, 0))
}
