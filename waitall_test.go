//go:build go1.25

package headgate_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// tenants are calls of tenants that wait for one shared key of 50 per second.
type tenants struct {
	own, shared *headgate.Limiter
	all         sync.WaitGroup
	mu          sync.Mutex
	passed      []string // the tenants, in the order in which their calls passed
}

// newTenants spends the shared key. A tenant's own key lets own calls pass per second.
func newTenants(t *testing.T, s backend.Store, own int64) *tenants {
	shared := headgate.Policy{Name: "shared", Algorithm: algo.TokenBucket(algo.PerSecond(50), 1), OnFailure: headgate.FailClosed}
	x := &tenants{own: limiter(t, s, nil, bucket(own, 1)), shared: limiter(t, s, nil, shared)}
	_, err := x.shared.Allow(context.Background(), "shared")
	require.NoError(t, err)
	return x
}

func (x *tenants) wait(ctx context.Context, tenant string, weight int) error {
	p := x.own.Part(tenant)
	p.Weight = weight
	_, err := headgate.WaitAll(ctx, p, x.shared.Part("shared"))
	if err == nil {
		x.mu.Lock()
		x.passed = append(x.passed, tenant)
		x.mu.Unlock()
	}
	return err
}

// queue has n calls of a tenant wait until they pass or ctx ends.
func (x *tenants) queue(ctx context.Context, tenant string, weight, n int) {
	for range n {
		x.all.Add(1)
		go func() {
			defer x.all.Done()
			_ = x.wait(ctx, tenant, weight)
		}()
	}
}

// TestWaitAllTurns: two tenants wait for one limit of 50 per second, one with 10,000
// calls. The one call of the other waits for one turn.
func TestWaitAllTurns(t *testing.T) {
	const runs = 20
	t.Run("memory", func(t *testing.T) {
		for range redistest.Steps(3, runs) {
			synctest.Test(t, func(t *testing.T) {
				took := oneBehind(t, memory.New(nil), 10_000)
				require.LessOrEqual(t, took, 40*time.Millisecond, "the present turn and its own")
			})
		}
	})
	t.Run("redis", func(t *testing.T) {
		server, worst := redistest.Start(t), time.Duration(0)
		for range redistest.Steps(3, runs) {
			s, err := standalone.Open("redis://"+server.Addr(), patient)
			require.NoError(t, err)
			worst = max(worst, oneBehind(t, s, 10_000))
			require.NoError(t, s.Close())
			server.Client(t).FlushAll(context.Background())
		}
		t.Logf("the worst wait is %v", worst)
		if redistest.Long() {
			require.LessOrEqual(t, worst, 300*time.Millisecond)
		}
	})
}

// oneBehind returns how long one call waits beside a tenant with n calls.
func oneBehind(t *testing.T, s backend.Store, n int) time.Duration {
	x := newTenants(t, s, 1_000_000)
	ctx, cancel := context.WithCancel(context.Background())
	x.queue(ctx, "many", 0, n)
	time.Sleep(200 * time.Millisecond)
	begin := time.Now()
	require.NoError(t, x.wait(context.Background(), "one", 0))
	took := time.Since(begin)
	cancel()
	x.all.Wait()
	return took
}

// TestWaitAllOwnKeySpent: a tenant whose own key is spent delays no other, and passes once
// its key lets it.
func TestWaitAllOwnKeySpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTenants(t, memory.New(nil), 1)
		x.queue(context.Background(), "slow", 0, 3)
		synctest.Wait()
		begin := time.Now()
		for i := range 50 {
			require.NoError(t, x.wait(context.Background(), fmt.Sprint("other", i), 0))
		}
		require.LessOrEqual(t, time.Since(begin), 1060*time.Millisecond, "as fast as the shared key lets them")
		x.all.Wait()
		require.LessOrEqual(t, time.Since(begin), 2100*time.Millisecond)
	})
}

// TestWaitAllWeights: turns by weight, also of queues that are never empty, and a tenant
// that comes late gets no turns for the time before.
func TestWaitAllWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTenants(t, memory.New(nil), 1_000_000)
		ctx, cancel := context.WithCancel(context.Background())
		x.queue(ctx, "three", 3, 1000)
		x.queue(ctx, "one", 1, 1000)
		time.Sleep(8 * time.Second)
		x.queue(ctx, "late", 0, 1000)
		time.Sleep(5 * time.Second)
		cancel()
		x.all.Wait()
		count := func(of []string, name string) int { return strings.Count(strings.Join(of, " "), name) }
		require.InDelta(t, 300, count(x.passed[:400], "three"), 2)
		require.InDelta(t, 150, count(x.passed[400:], "three"), 3)
		require.InDelta(t, 50, count(x.passed[400:], "one"), 3)
		require.InDelta(t, 50, count(x.passed[400:], "late"), 3)
	})
}

// TestWaitAllOrder: calls of one tenant pass in the order of their arrival, whatever the
// turns, and nothing is charged for a call that left.
func TestWaitAllOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(nil)
		x := newTenants(t, s, 1_000_000)
		x.own = limiter(t, s, nil, headgate.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(1_000_000)), OnFailure: headgate.FailClosed})
		var mu sync.Mutex
		var order []int
		for i := range 100 {
			x.all.Add(1)
			go func() {
				defer x.all.Done()
				ctx, cancel := context.WithCancel(context.Background())
				if i%3 == 1 { // leaves while it is the head, or before
					time.AfterFunc(time.Duration(i)*13*time.Millisecond, cancel)
				}
				defer cancel()
				err := x.wait(ctx, fmt.Sprint("tenant", i%2), 0)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && i%2 == 0 {
					order = append(order, i)
				}
			}()
			synctest.Wait()
		}
		x.all.Wait()
		require.IsIncreasing(t, order)
		d, err := x.own.Peek(context.Background(), headgate.Call{Key: "tenant0"})
		require.NoError(t, err)
		require.EqualValues(t, len(order), d.Used)
		require.GreaterOrEqual(t, len(x.passed), 67)
		require.Less(t, len(x.passed), 100)
	})
}

// TestWaitAllRefuses: with one part it is Wait. What can't pass is refused at once, as
// what surely passes too late; what was perhaps counted is not repeated.
func TestWaitAllRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := context.Background(), newLossy()
		l := limiter(t, s, nil, bucket(1, 5))
		begin := time.Now()
		_, err := headgate.WaitAll(ctx, l.Part("a"), headgate.Part{})
		require.Error(t, err)
		_, err = headgate.WaitAll(ctx, headgate.Part{}, l.Part("a"))
		require.Error(t, err)
		_, err = headgate.WaitAll(ctx, headgate.Part{})
		require.Error(t, err)
		_, err = headgate.WaitAll(ctx, headgate.Part{Limiter: l, Call: headgate.Call{Key: "a"}, Weight: -1}, l.Part("b"))
		require.ErrorAs(t, err, new(*headgate.InvalidError))
		_, err = headgate.WaitAll(ctx, l.Part("a"), l.Part("b", 6))
		require.ErrorIs(t, err, headgate.ErrNeverAdmissible)

		states := make([]headgate.State, 1)
		last := l.Part("b", 5)
		last.Call.Each = states
		d, err := headgate.WaitAll(ctx, l.Part("a", 5), last)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.EqualValues(t, 5, states[0].Used)
		_, err = headgate.WaitAll(ctx, l.Part("c"))
		require.NoError(t, err)
		require.Zero(t, time.Since(begin))

		short, cancel := context.WithTimeout(ctx, 900*time.Millisecond)
		defer cancel()
		var late *headgate.DeadlineError
		for _, parts := range [][]headgate.Part{{l.Part("a"), l.Part("x")}, {l.Part("x"), l.Part("b")}} {
			_, err = headgate.WaitAll(short, parts...)
			require.ErrorAs(t, err, &late)
		}
		require.Zero(t, time.Since(begin))

		s.lose(0, onAll)
		_, err = headgate.WaitAll(ctx, l.Part("d"), l.Part("e"))
		require.ErrorIs(t, err, headgate.ErrPerhapsCounted)
		s.lose(0, 0)
		for _, key := range []string{"d", "e"} {
			d, err = l.Peek(ctx, headgate.Call{Key: key})
			require.NoError(t, err)
			require.EqualValues(t, 1, d.Used, "charged once")
		}
	})
}

// TestWaitAllEvents: each wait is one event, of the key that binds.
func TestWaitAllEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		l := limiter(t, memory.New(nil), &headgate.Options{Observer: seen.observe}, bucket(1, 1))
		passed := crowd(t, 3, func(i int) error {
			_, err := headgate.WaitAll(context.Background(), l.Part(fmt.Sprint("own", i)), l.Part("shared"))
			return err
		})
		all := seen.of(headgate.EventDecision)
		require.Len(t, all, 3)
		for i, e := range all {
			require.True(t, e.Decision.Allowed)
			require.Equal(t, passed[i], e.Duration)
			require.Equal(t, passed[i], e.Waited)
		}
	})
}

// slowSecond makes the second script after armed take 30 ms longer, as after a lost packet.
type slowSecond struct {
	armed   atomic.Bool
	scripts atomic.Int32
}

func (*slowSecond) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*slowSecond) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *slowSecond) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" && s.armed.Load() && s.scripts.Add(1) == 2 {
			time.Sleep(30 * time.Millisecond)
		}
		return next(ctx, cmd)
	}
}

// TestWaitAllMeetsItsCharge: a call that the shared key has denied is not denied by what its
// own key gives back.
func TestWaitAllMeetsItsCharge(t *testing.T) {
	server, slow := redistest.Start(t), &slowSecond{}
	client := server.Client(t)
	client.AddHook(slow)
	own := limiter(t, standalone.New(client, patient), nil, headgate.Policy{
		Name: "own", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailClosed})
	shared := limiter(t, standalone.New(server.Client(t), patient), nil, headgate.Policy{
		Name: "shared", Algorithm: algo.TokenBucket(algo.PerSecond(50), 1), OnFailure: headgate.FailClosed})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := own.Allow(ctx, "another tenant") // loads the script
	require.NoError(t, err)
	slow.armed.Store(true)
	_, err = shared.Allow(ctx, "gpu")
	require.NoError(t, err)
	_, err = headgate.WaitAll(ctx, own.Part("tenant"), shared.Part("gpu"))
	require.NoError(t, err)
}
