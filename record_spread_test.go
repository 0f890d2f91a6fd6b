package headgate_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// processes returns limiters on one count that remember nothing of each other, as those
// of several processes.
func processes(t *testing.T, n int, policies ...headgate.Policy) (all []*headgate.Limiter) {
	s := memory.New(nil)
	for range n {
		all = append(all, limiter(t, remote(s), nil, policies...))
	}
	return all
}

func spreadDay(limit int64, shards int) headgate.Policy {
	p := daily("p", limit)
	p.Shards = shards
	return p
}

// requireSpent requires that the key has used so much, and that no call passes: by this
// limiter, which remembers the sub-keys, and by one that does not.
func requireSpent(t *testing.T, used int64, limiters ...*headgate.Limiter) {
	t.Helper()
	for _, l := range limiters {
		d, err := l.Peek(context.Background(), headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.Equal(t, used, d.Used)
		require.Zero(t, d.Remaining)
		require.False(t, d.Allowed)
		for range 100 {
			d, err := l.Allow(context.Background(), "k")
			require.NoError(t, err)
			require.False(t, d.Allowed)
		}
	}
}

// TestRecordSpendsSpreadKey: once the sum of the sub-keys is at the limit or above it, by
// Records of one process or of eight at once, no call passes.
func TestRecordSpendsSpreadKey(t *testing.T) {
	for _, shards := range []int{2, 3, 16, 64} {
		for _, n := range []int{1, 8} {
			for _, limits := range []int64{1, 2, 10} {
				t.Run(fmt.Sprint(shards, n, limits), func(t *testing.T) {
					limit := int64(100 * shards)
					all := processes(t, n+1, spreadDay(limit, shards))
					var recording sync.WaitGroup
					for _, l := range all[:n] {
						recording.Add(1)
						go func() {
							defer recording.Done()
							for range 4 {
								d, err := l.Record(context.Background(), headgate.Call{Key: "k", Costs: []int64{(limits*limit/int64(n) + 3) / 4}})
								if err != nil || !d.Allowed {
									t.Error(d, err)
								}
							}
						}()
					}
					recording.Wait()
					requireSpent(t, (limits*limit/int64(n)+3)/4*4*int64(n), all[0], all[n])
				})
			}
		}
	}
}

// TestRecordOnSpreadKeys: calls that are admitted by one unit, and recorded by what they
// have used, pass no more than the limit and one record; by a Commit as well.
func TestRecordOnSpreadKeys(t *testing.T) {
	ctx := context.Background()
	for name, use := range map[string]func(l *headgate.Limiter, units int64) (bool, error){
		"Record": func(l *headgate.Limiter, units int64) (bool, error) {
			d, err := l.Allow(ctx, "k")
			if err == nil && d.Allowed {
				_, err = l.Record(ctx, headgate.Call{Key: "k", Costs: []int64{units - 1}})
			}
			return d.Allowed, err
		},
		"Commit": func(l *headgate.Limiter, units int64) (bool, error) {
			r, d, err := l.Reserve(ctx, headgate.Call{Key: "k"})
			if err == nil && d.Allowed {
				err = r.Commit(ctx, units)
			}
			return d.Allowed, err
		},
	} {
		for _, shards := range []int{16, 64} {
			for _, units := range []int64{3_000, 30_000} {
				t.Run(fmt.Sprint(name, shards, units), func(t *testing.T) {
					const limit = 1_000_000
					all := processes(t, 3, spreadDay(limit, shards))
					for denied, i := 0, 0; denied < 10*len(all); i++ {
						passed, err := use(all[i%len(all)], units)
						require.NoError(t, err)
						if denied++; passed {
							denied = 0
						}
					}
					d, err := all[0].Peek(ctx, headgate.Call{Key: "k"})
					require.NoError(t, err)
					require.InDelta(t, limit+units/2, d.Used, float64(units)/2)
				})
			}
		}
	}
}

// severalDays returns two policies on spread keys. The second one has one unit per sub-key.
func severalDays(limit int64, shards int, shadow bool) []headgate.Policy {
	few := spreadDay(int64(shards), shards)
	few.Name, few.Shadow = "few", shadow
	return []headgate.Policy{spreadDay(limit, shards), few}
}

// TestRecordSpendsEachPolicy: once the sum of a policy is at its limit, no call passes it,
// although another policy of the list was spent before. By Records and by Commits.
func TestRecordSpendsEachPolicy(t *testing.T) {
	redistest.Plain(t)
	t.Parallel()
	const limit, shards, callers = 100_000, 8, 8
	ctx, server := context.Background(), redistest.Start(t)
	process := func(policies ...headgate.Policy) *headgate.Limiter {
		return limiter(t, standalone.New(server.Client(t), &standalone.Options{Budget: 10 * time.Second}), nil, policies...)
	}
	for name, use := range map[string]func(l *headgate.Limiter, key string, units int64) error{
		"Record": func(l *headgate.Limiter, key string, units int64) error {
			_, err := l.Record(ctx, headgate.Call{Key: key, Costs: []int64{units, 1}})
			return err
		},
		"Commit": func(l *headgate.Limiter, key string, units int64) error {
			r, _, err := l.Reserve(ctx, headgate.Call{Key: key, Costs: []int64{0, 1}}) // denied once one policy is spent
			if err == nil && r.Token() != "" {
				return r.Commit(ctx, units, 2)
			}
			_, err = l.Record(ctx, headgate.Call{Key: key, Costs: []int64{units, 1}})
			return err
		},
	} {
		for _, shadow := range []bool{false, true} {
			t.Run(fmt.Sprint(name, shadow), func(t *testing.T) {
				policies, all := severalDays(limit, shards, shadow), []*headgate.Limiter(nil)
				for range callers {
					all = append(all, process(policies...))
				}
				for round := range 20 {
					key, recording := fmt.Sprint(name, shadow, round), sync.WaitGroup{}
					for i, l := range all {
						recording.Add(1)
						go func() {
							defer recording.Done()
							for left := int64(limit / callers); left > 0; {
								units := min(left, int64(700+100*i))
								if err := use(l, key, units); err != nil {
									t.Error(err)
								}
								left -= units
							}
						}()
					}
					recording.Wait()
					first := process(policies[0])
					d, err := first.Peek(ctx, headgate.Call{Key: key})
					require.NoError(t, err)
					require.EqualValues(t, limit, d.Used)
					d, err = first.AllowAtMost(ctx, key, limit)
					require.NoError(t, err)
					require.Zero(t, d.Granted, "key %s", key)
				}
			})
		}
	}
}

// TestRecordWhileAnotherTakes: a policy that has room goes by it, also if another policy goes
// above its limit in the same round trip, and another process takes the room meanwhile.
func TestRecordWhileAnotherTakes(t *testing.T) {
	ctx := context.Background()
	for range 30 {
		base := memory.New(nil)
		policies := severalDays(800, 8, false)
		other := limiter(t, remote(base), nil, policies...)
		var once sync.Once
		l := limiter(t, &fake{Store: base, do: func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
			if r.Op == backend.Record { // the room of all sub-keys is known
				once.Do(func() {
					_, err := other.Record(ctx, headgate.Call{Key: "k", Costs: []int64{100, 0}})
					require.NoError(t, err)
				})
			}
			return next.Do(ctx, r, d)
		}, shared: base.Shared()}, nil, policies...)
		_, err := other.Record(ctx, headgate.Call{Key: "k", Costs: []int64{400, 8}})
		require.NoError(t, err)
		_, err = l.Record(ctx, headgate.Call{Key: "k", Costs: []int64{300, 1}})
		require.NoError(t, err)
		requireUsed(t, l, 800, 9)
		requireSpent(t, 800, limiter(t, base, nil, policies[0]))
	}
}

// TestRecordRoundTrips: a Record asks no sub-key more than twice, whatever its size, and
// of a sub-key with room it asks that one alone.
func TestRecordRoundTrips(t *testing.T) {
	for _, cost := range []int64{1, 6, 50, 100, 130, 1000} {
		var mu sync.Mutex
		subs := map[string]int{}
		s := &fake{Store: memory.New(nil), do: func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
			mu.Lock()
			subs[r.Sub]++
			mu.Unlock()
			return next.Do(ctx, r, d)
		}}
		l := limiter(t, s, nil, spreadDay(100, 16))
		for range 2 {
			clear(subs)
			_, err := l.Record(context.Background(), headgate.Call{Key: "k", Costs: []int64{cost}})
			require.NoError(t, err)
			for _, n := range subs {
				require.LessOrEqual(t, n, 2, "a Record of %d", cost)
			}
		}
		require.True(t, cost > 1 || len(subs) == 1)
	}
	l := limiter(t, memory.New(nil), nil, spreadDay(100, 16), headgate.Policy{
		Name: "q", Algorithm: algo.FixedWindow(algo.PerDay(1000)), OnFailure: headgate.FailOpen, Shards: 16})
	d, err := l.Record(context.Background(), headgate.Call{Key: "k", Costs: []int64{130, 10}})
	require.NoError(t, err)
	require.True(t, d.Allowed)
	requireUsed(t, l, 130, 10)
}

// TestLostRecordOnSpreadKey: units of which it is unknown whether they are charged are not
// sent to another sub-key.
func TestLostRecordOnSpreadKey(t *testing.T) {
	for _, cost := range []int64{3, 60, 130} {
		l := limiter(t, onceLossy(backend.RecordAtMost), nil, spreadDay(100, 4))
		_, err := l.Peek(context.Background(), headgate.Call{Key: "k"}) // so that all sub-keys are known
		require.NoError(t, err)
		_, err = l.Record(context.Background(), headgate.Call{Key: "k", Costs: []int64{cost}})
		require.ErrorIs(t, err, headgate.ErrPerhapsCounted)
		d, err := l.Peek(context.Background(), headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.Equal(t, cost, d.Used)
		s := newLossy()
		s.lose(onAll, 0)
		_, err = limiter(t, s, nil, spreadDay(100, 4)).Record(context.Background(), headgate.Call{Key: "k", Costs: []int64{cost}})
		require.ErrorIs(t, err, headgate.ErrUnavailable)
	}
}

// TestLostReserveSparesShadow: if the answer to a Reserve was lost, it is not known whether a
// shadow had room. It is charged no excess, so it never counts more than it would have.
func TestLostReserveSparesShadow(t *testing.T) {
	ctx := context.Background()
	server := redistest.Start(t)
	opts := &headgate.Options{TokenKey: []byte("0123456789abcdef")}
	for _, how := range []string{"Reserve", "ReserveAll", "Resume"} {
		s := lossyOf(standalone.New(server.Client(t), &standalone.Options{Budget: 10 * time.Second}))
		l := limiter(t, s, opts, spreadDay(400, 4), dailyShadow("s", 8, 4))
		require.NoError(t, l.Reset(ctx, "k"))
		_, err := l.Record(ctx, headgate.Call{Key: "k", Costs: []int64{8, 8}})
		require.NoError(t, err)
		s.lose(0, onReserve)
		call := headgate.Call{Key: "k", Costs: []int64{2, 2}}
		var r *headgate.Reservation
		if how == "ReserveAll" {
			rs, d, err := headgate.ReserveAll(ctx, headgate.Part{Limiter: l, Call: call}, limiter(t, s, opts, daily("other", 100)).Call(how, 1))
			require.NoError(t, err)
			require.ErrorIs(t, d.Err, headgate.ErrPerhapsCounted)
			r = rs[0]
		} else {
			var d headgate.Decision
			r, d, err = l.Reserve(ctx, call)
			require.NoError(t, err)
			require.ErrorIs(t, d.Err, headgate.ErrPerhapsCounted)
		}
		s.lose(0, 0)
		if how == "Resume" {
			r, err = l.Resume(r.Token())
			require.NoError(t, err)
		}
		require.NoError(t, r.Commit(ctx, 5, 5))
		requireUsed(t, l, 13, 8)
	}
}

// TestPassesAboveTheSum: when units leave some sub-keys of a key that is charged above its
// limit, these have room again. No more passes beyond the limit than was charged above it.
func TestPassesAboveTheSum(t *testing.T) {
	ctx := context.Background()
	p := spreadDay(1600, 16)
	l := limiter(t, memory.New(nil), nil, p)
	var all []*headgate.Reservation
	for range 16 {
		r, d, err := l.Reserve(ctx, headgate.Call{Key: "k", Costs: []int64{100}})
		require.NoError(t, err)
		require.True(t, d.Allowed)
		all = append(all, r)
	}
	for i, r := range all {
		require.NoError(t, r.Commit(ctx, int64(200*(1-i/8)))) // eight are 100 above, and eight give 100 back
	}
	d, err := l.Peek(ctx, headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.EqualValues(t, 1600, d.Used)
	passed := 0
	for range 2000 {
		d, err := l.Allow(ctx, "k")
		require.NoError(t, err)
		if d.Allowed {
			passed++
		}
	}
	t.Logf("%d passed beyond the limit, and 800 were charged above it", passed)
	require.LessOrEqual(t, passed, 800)
}

// TestRecordOfACallerThatLeft: if the caller leaves between two round trips, a part is charged.
func TestRecordOfACallerThatLeft(t *testing.T) {
	ctx, leave := context.WithCancel(context.Background())
	records := 0
	s := inMemory(func(c context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		if r.Op == backend.Record { // after the room of each sub-key
			leave()
		}
		if r.Op == backend.RecordAtMost {
			records++
		}
		if err := ctx.Err(); err != nil && r.Op != backend.Peek {
			return err
		}
		return next.Do(c, r, d)
	})
	l := limiter(t, s, nil, spreadDay(160, 2))
	_, err := l.Record(ctx, headgate.Call{Key: "k", Costs: []int64{200}})
	require.ErrorIs(t, err, headgate.ErrPerhapsCounted)
	require.ErrorIs(t, err, context.Canceled)
	require.Positive(t, records)
	d, err := l.Peek(context.Background(), headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.EqualValues(t, 160, d.Used)

	_, err = l.Record(ctx, headgate.Call{Key: "other", Costs: []int64{200}}) // before anything was sent
	require.NotErrorIs(t, err, headgate.ErrPerhapsCounted)
	require.ErrorIs(t, err, context.Canceled)
}

// TestRecordAfterForeignReset: what this process remembers of the room is no reason to
// charge a sub-key above it. Another process has reset the key.
func TestRecordAfterForeignReset(t *testing.T) {
	ctx, all := context.Background(), processes(t, 2, spreadDay(160, 16))
	_, err := all[0].Record(ctx, headgate.Call{Key: "k", Costs: []int64{80}}) // which spends half of the sub-keys
	require.NoError(t, err)
	require.NoError(t, all[1].Reset(ctx, "k"))
	_, err = all[0].Record(ctx, headgate.Call{Key: "k", Costs: []int64{170}})
	require.NoError(t, err)
	requireSpent(t, 170, all[1], all[0])
}

// roundTrips counts the round trips with scripts, by node.
type roundTrips struct {
	sync.Mutex
	nodes map[string]int
}

// take returns what was counted, and begins anew.
func (n *roundTrips) take() map[string]int {
	n.Lock()
	defer n.Unlock()
	nodes := n.nodes
	n.nodes = map[string]int{}
	return nodes
}

// newClient makes the client of a node.
func (n *roundTrips) newClient(o *redis.Options) *redis.Client {
	c := redis.NewClient(o)
	c.AddHook(tripHook{n, o.Addr})
	return c
}

type tripHook struct {
	*roundTrips
	node string
}

func (h tripHook) sends(cmds ...redis.Cmder) {
	if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Name() == "evalsha" }) {
		h.Lock()
		h.nodes[h.node]++
		h.Unlock()
	}
}

func (h tripHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h tripHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.sends(cmd)
		return next(ctx, cmd)
	}
}

func (h tripHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.sends(cmds...)
		return next(ctx, cmds)
	}
}

// TestRecordOnACluster: a Record makes at most two round trips to a node, and once the sum
// is at the limit no call passes.
func TestRecordOnACluster(t *testing.T) {
	t.Parallel()
	ctx, c, trips := context.Background(), redistest.StartCluster(t), &roundTrips{nodes: map[string]int{}}
	stores := [2]backend.Store{}
	for i := range stores { // of two processes
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), NewClient: trips.newClient, MaxRetries: -1})
		t.Cleanup(func() { _ = client.Close() })
		stores[i] = cluster.New(client, &cluster.Options{Budget: 10 * time.Second})
	}
	for _, shards := range []int{4, 16, 64} {
		limit := int64(100 * shards)
		for _, costs := range [][]int64{{limit}, {limit / 2, limit / 2}, {1, limit / 3, limit}, {3 * limit}} {
			first, other := limiter(t, stores[0], nil, spreadDay(limit, shards)), limiter(t, stores[1], nil, spreadDay(limit, shards))
			require.NoError(t, first.Reset(ctx, "k")) // which loads the script
			used := int64(0)
			for _, cost := range costs {
				trips.take()
				_, err := first.Record(ctx, headgate.Call{Key: "k", Costs: []int64{cost}})
				require.NoError(t, err)
				used += cost
				nodes := trips.take()
				require.NotEmpty(t, nodes)
				for node, n := range nodes {
					require.LessOrEqual(t, n, 2, "a Record of %d by %d sub-keys, to %s", cost, shards, node)
				}
			}
			requireSpent(t, used, first, other)
		}
	}
}

// TestColdRecordOnACluster: a process's first Record makes no more round trips to a node, also
// if one policy goes above its limit, and another by what a second process has left.
func TestColdRecordOnACluster(t *testing.T) {
	t.Parallel()
	ctx, c, trips := context.Background(), redistest.StartCluster(t), &roundTrips{nodes: map[string]int{}}
	process := func() backend.Store {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), NewClient: trips.newClient, MaxRetries: -1})
		t.Cleanup(func() { _ = client.Close() })
		s := cluster.New(client, &cluster.Options{Budget: 10 * time.Second})
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	other := process()
	for _, shards := range []int{4, 16, 64} {
		limit := int64(100 * shards)
		for _, cost := range []int64{1, limit / 2, limit, 3 * limit} {
			for _, policies := range [][]headgate.Policy{{spreadDay(limit, shards)}, severalDays(limit, shards, false)} {
				key, used := fmt.Sprint(shards, cost, len(policies)), []int64{limit / 3, int64(shards)}[:len(policies)]
				if len(policies) > 1 {
					_, err := limiter(t, other, nil, policies...).Record(ctx, headgate.Call{Key: key, Costs: used})
					require.NoError(t, err)
				}
				cold := limiter(t, process(), nil, policies...)
				trips.take()
				_, err := cold.Record(ctx, headgate.Call{Key: key, Costs: []int64{cost, 1}[:len(policies)]})
				require.NoError(t, err)
				for node, n := range trips.take() {
					require.LessOrEqual(t, n, 2, "a Record of %d by %d sub-keys, to %s", cost, shards, node)
				}
			}
		}
	}
}
