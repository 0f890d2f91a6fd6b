package standalone_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const (
	faulted = 1000 // calls whose reply is lost, of each fault
	callers = 64
)

var wide = headgate.Policy{Name: "wide", Algorithm: algo.FixedWindow(algo.Per(1000, algo.MaxPeriod)), OnFailure: headgate.FailClosed}

func limiter(t testing.TB, c standalone.Client, o *standalone.Options, policies ...headgate.Policy) *headgate.Limiter {
	t.Helper()
	l, err := headgate.New(standalone.New(c, o), policies, nil)
	require.NoError(t, err)
	return l
}

// TestAtMostOnce loses a thousand replies in each way, with a client whose
// settings are go-redis' own: no call may be charged twice, each must be told
// what is known of it, and in time.
func TestAtMostOnce(t *testing.T) {
	server := redistest.Start(t)
	direct := limiter(t, server.Client(t), nil, wide)
	for _, fault := range []redistest.Fault{
		redistest.SwallowReply(150 * time.Millisecond), redistest.ResetAfterRequest, redistest.HalfReply,
	} {
		t.Run(fault.String(), func(t *testing.T) { loseReplies(t, server, direct, fault) })
	}
	server.NoImmortals(t, "")
}

func loseReplies(t *testing.T, server *redistest.Server, direct *headgate.Limiter, fault redistest.Fault) {
	ctx := context.Background()
	proxy := redistest.NewProxy(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	l := limiter(t, client, nil, wide)
	_, err := l.Allow(ctx, "loads the script")
	require.NoError(t, err)
	proxy.Set(fault)
	late := redistest.Lateness(t, standalone.DefaultBudget)

	var perhaps, unsent atomic.Int64
	var worst atomic.Int64
	var running sync.WaitGroup
	for c := range callers {
		running.Add(1)
		go func() {
			defer running.Done()
			for i := 0; proxy.Hit() < faulted; i++ {
				key := fmt.Sprintf("%v/%d/%d", fault, c, i)
				begin := time.Now()
				d, err := l.Allow(ctx, key)
				highest(&worst, time.Since(begin))
				used := peek(t, direct, key)
				switch {
				case err != nil:
					t.Error(err)
				case errors.Is(d.Err, headgate.ErrPerhapsCounted) && used <= 1:
					perhaps.Add(1)
				case errors.Is(d.Err, headgate.ErrUnavailable) && used == 0:
					unsent.Add(1)
				default:
					t.Errorf("%s: used %d, told %v", key, used, d.Err)
				}
			}
		}()
	}
	running.Wait()
	took, allowed := time.Duration(worst.Load()), standalone.DefaultBudget+late.Max()
	t.Logf("%d replies lost; told: %d perhaps counted, %d nothing sent; longest call %v, budget and a bare timer's lateness %v",
		proxy.Hit(), perhaps.Load(), unsent.Load(), took, allowed)
	require.EqualValues(t, proxy.Hit(), perhaps.Load(), "every call whose reply was lost is told so, and no other")
	require.LessOrEqual(t, took, allowed)
}

func highest(m *atomic.Int64, d time.Duration) {
	for old := m.Load(); int64(d) > old && !m.CompareAndSwap(old, int64(d)); old = m.Load() {
	}
}

func peek(t *testing.T, l *headgate.Limiter, key string) int64 {
	d, err := l.Peek(context.Background(), key, 0)
	if err != nil || d.Err != nil {
		t.Error(err, d.Err)
	}
	return d.Used
}
