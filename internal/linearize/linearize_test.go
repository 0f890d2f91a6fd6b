// Package linearize shows that the stores are linearizable: what concurrent callers of a
// key saw is what they could have seen one after the other. In that order a call that
// had returned before another one began comes first. Replies are lost on the way.
package linearize

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func now() time.Time { return time.UnixMicro(start) }

// budget is long: an answer that comes late is a lost one, and many of those make a
// history hard to check.
const budget = 10 * time.Second

func TestLinearizable(t *testing.T) {
	t.Run("Memory", func(t *testing.T) {
		t.Parallel()
		require.Positive(t, histories(t, lossy{memory.New(&memory.Options{Now: now})}, false))
	})
	t.Run("Standalone", func(t *testing.T) {
		t.Parallel()
		n := &network{t: t}
		s := standaloneStore(t, n)
		n.lose()
		require.Positive(t, histories(t, s, false))
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		n := &network{t: t}
		c := redistest.StartCluster(t)
		options := &redis.ClusterOptions{Addrs: c.Addrs(), Dialer: n.dial}
		s := cluster.New(clock.Cluster{ClusterOptions: with{options}, Now: now}, &cluster.Options{Budget: budget})
		t.Cleanup(func() { _ = s.Close() })
		n.lose()
		require.Positive(t, histories(t, s, false))
	})
}

// TestResendingIsIllegal is the control: callers that ask again where an answer was
// lost charge twice.
func TestResendingIsIllegal(t *testing.T) {
	n := &network{t: t}
	s := standaloneStore(t, n)
	n.lose()
	histories(t, s, true)
}

// lossy loses the answer of one call in ten, and of some of these the call.
type lossy struct{ backend.Store }

func (l lossy) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	n := rand.IntN(20)
	if n > 0 {
		if err := l.Store.Do(ctx, r, d); err != nil || n > 1 {
			return err
		}
	}
	*d = backend.Decision{}
	return backend.ErrPerhapsCounted
}

func standaloneStore(t *testing.T, n *network) backend.Store {
	server := redistest.Start(t)
	client := server.Client(t, func(o *redis.Options) { o.Dialer = n.dial })
	return standalone.New(clock.Client{Processor: client, Now: now}, &standalone.Options{Budget: budget})
}

// histories runs histories of each list of policies, some at a time, and checks them.
// It returns how many answers were lost.
func histories(t *testing.T, s backend.Store, resend bool) (lost int) {
	var illegal, checked int
	seed := redistest.Seed(t)
	for i, list := range lists() {
		for j := range redistest.Steps(2, 60) {
			h := &history{store: s, list: list, resend: resend, key: fmt.Sprint(i, "/", j)}
			h.run(4, redistest.Steps(8, 12), seed+uint64(checked))
			lost += h.mu.lost
			checked++
			switch result := porcupine.CheckOperationsTimeout(model, h.mu.operations, time.Minute); {
			case result == porcupine.Illegal && resend:
				illegal++
			case result != porcupine.Ok:
				h.explain(t)
				t.Fatalf("a history of %v is %v", &list[0].Algorithm, result)
			}
		}
	}
	t.Log(checked, "histories,", lost, "lost answers,", illegal, "illegal histories")
	require.Equal(t, resend, illegal > 0)
	return lost
}

// network is a proxy before each server.
type network struct {
	t    testing.TB
	lock sync.Mutex
	of   map[string]*redistest.Proxy
	f    redistest.Fault
}

// lose loses a reply now and then, in one way or another.
func (n *network) lose() {
	n.lock.Lock()
	defer n.lock.Unlock()
	turn := 0
	var mu sync.Mutex
	n.f = redistest.Draw(func() redistest.Fault {
		mu.Lock()
		defer mu.Unlock()
		turn++
		return []redistest.Fault{redistest.ResetAfterRequest, redistest.HalfReply}[turn%2]
	}).Every(10)
	for _, p := range n.of {
		p.Set(n.f)
	}
}

func (n *network) dial(_ context.Context, network, addr string) (net.Conn, error) {
	n.lock.Lock()
	p := n.of[addr]
	if p == nil {
		if n.of == nil {
			n.of = map[string]*redistest.Proxy{}
		}
		p = redistest.NewProxy(n.t, addr)
		p.Set(n.f)
		n.of[addr] = p
	}
	n.lock.Unlock()
	return net.Dial(network, p.Addr())
}

// with is a Client that is nothing but its options.
type with struct{ *redis.ClusterOptions }

func (w with) Options() *redis.ClusterOptions { return w.ClusterOptions }
