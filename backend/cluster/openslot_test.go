package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// openSlot is a slot that stays open. Each policy has a limiter of its own, which
// needs one Redis key alone.
type openSlot struct {
	*testing.T
	store       *cluster.Store
	list        *headgate.Limiter // both policies
	fixed, logs *headgate.Limiter
	keys        []string
}

// TestOpenSlot holds a slot open, with its keys on the old owner, then on the new
// one. A reset resets all counts of a key, an operator finds what is stored, and calls
// that need several Redis keys of which some are missing are not counted.
func TestOpenSlot(t *testing.T) {
	t.Parallel()
	const moved = 7
	c := redistest.StartCluster(t)
	o := openSlot{T: t, store: open(c.Addrs(), &cluster.Options{Budget: time.Second}), keys: inSlot(moved, 6, "k")}
	defer o.store.Close()
	list := []headgate.Policy{
		{Name: "fixed", Algorithm: algo.FixedWindow(algo.PerDay(100)), OnFailure: headgate.FailClosed},
		{Name: "log", Algorithm: algo.SlidingLog(algo.PerDay(100)), OnFailure: headgate.FailClosed},
	}
	o.list = faulttest.Limiter(t, o.store, list...)
	o.fixed, o.logs = faulttest.Limiter(t, o.store, list[0]), faulttest.Limiter(t, o.store, list[1])
	for _, key := range o.keys[:3] {
		_, d, err := o.list.Reserve(t.Context(), headgate.Call{Key: key, Lease: time.Hour})
		require.NoError(t, err)
		require.NoError(t, d.Err)
	}
	stored, leases := o.found(o.keys[1])
	to := c.Primary(slot.Count - 1)
	m := beginMove(t, c, moved, to)
	o.resets(o.keys[0])
	o.redirectsFail(c, to)
	for m.keys(t, 100) > 0 {
	}
	nowStored, nowLeases := o.found(o.keys[1])
	require.Equal(t, stored, nowStored)
	require.Equal(t, len(leases), len(nowLeases))
	require.Equal(t, leases[0].ID, nowLeases[0].ID)
	o.resets(o.keys[1])
	o.uncounted(o.keys[3], o.keys[4])
	m.end(t)
	for _, key := range o.keys[3:5] {
		d, err := o.list.Allow(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, d.Err)
		require.EqualValues(t, 1, d.Used)
	}
	c.NoImmortals(t)
}

// found is what an operator's tools find of a key.
func (o *openSlot) found(key string) ([]backend.Stored, []backend.StoredLease) {
	o.Helper()
	stored, err := o.store.Stored(o.Context(), key)
	require.NoError(o, err)
	leases, err := o.store.Leases(o.Context(), key)
	require.NoError(o, err)
	require.Len(o, leases, 1)
	return stored, leases
}

func (o *openSlot) resets(key string) {
	o.Helper()
	require.NoError(o, o.list.Reset(o.Context(), key))
	require.Zero(o, faulttest.Used(o, o.fixed, key))
	require.Zero(o, faulttest.Used(o, o.logs, key))
}

// uncounted asks for two keys that Redis has and the call lacks.
func (o *openSlot) uncounted(list, reserved string) {
	d, err := o.list.Allow(o.Context(), list)
	require.NoError(o, err)
	require.ErrorIs(o, d.Err, headgate.ErrUnavailable)
	_, d, err = o.fixed.Reserve(o.Context(), headgate.Call{Key: reserved})
	require.NoError(o, err)
	require.ErrorIs(o, d.Err, headgate.ErrUnavailable)
	for node, state := range o.list.Stats().Circuits {
		require.Equal(o, "closed", state, node)
	}
}

// redirectsFail has redirects whose target gets no client: that is no failure of the
// node that redirects.
func (o *openSlot) redirectsFail(c *redistest.Cluster, to *redistest.Server) {
	opts := redis.ClusterOptions{Addrs: c.Addrs(), NewClient: func(opts *redis.Options) *redis.Client {
		if opts.Addr == to.Addr() {
			return nil
		}
		return redis.NewClient(opts)
	}}
	store := cluster.New(with{&opts}, &cluster.Options{Budget: time.Second})
	defer store.Close()
	l := faulttest.Limiter(o, store, faulttest.Wide)
	for range 6 {
		d, err := l.Allow(context.Background(), o.keys[5])
		require.NoError(o, err)
		require.ErrorContains(o, d.Err, "NewClient returned no client for "+to.Addr()+", after ASK")
	}
	require.Equal(o, "closed", l.Stats().Circuits[c.Primary(0).Addr()])
}

// TestUnassignedSlot: the failure of a slot without an owner is not its last owner's.
func TestUnassignedSlot(t *testing.T) {
	t.Parallel()
	const lost = 7
	c := redistest.StartCluster(t)
	store := open(c.Addrs(), nil)
	defer store.Close()
	l := faulttest.Limiter(t, store, faulttest.Wide)
	key, beside := inSlot(lost, 1, "k")[0], inSlot(lost+1, 1, "k")[0]
	require.Eventually(t, func() bool { return decided(t, l, key) && decided(t, l, beside) }, 10*time.Second, time.Millisecond)
	for _, s := range c.Nodes() {
		require.NoError(t, s.Client(t).Do(t.Context(), "cluster", "delslots", lost).Err())
	}
	for range 8 {
		require.False(t, decided(t, l, key))
	}
	for node, state := range l.Stats().Circuits {
		require.Equal(t, "closed", state, node)
	}
	require.True(t, decided(t, l, beside))
}

// decided reports whether the store decided a call.
func decided(t *testing.T, l *headgate.Limiter, key string) bool {
	d, err := l.Allow(t.Context(), key)
	require.NoError(t, err)
	return d.Source == headgate.FromStore
}
