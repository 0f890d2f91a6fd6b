package batch_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// instant is a point of a round trip at which a pause holds it.
type instant int32

const (
	never       instant = iota
	beforeWrite         // the client has taken the connection, and written nothing
	inWrite             // half of the command is written
	beforeReply         // the command is written, and on its way
	inReply             // half of the reply is read
)

// pause is a dialer whose connections hold one round trip at an instant.
type pause struct {
	at    atomic.Int32 // the instant; never once a round trip is held
	held  chan struct{}
	until chan struct{}
}

func (p *pause) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &paused{TCPConn: c.(*net.TCPConn), pause: p}, nil
}

// hold begins to wait for a round trip at an instant.
func (p *pause) hold(at instant) {
	p.held, p.until = make(chan struct{}), make(chan struct{})
	p.at.Store(int32(at))
}

// reached reports whether a round trip is to be held here.
func (p *pause) reached(at instant) bool { return p.at.CompareAndSwap(int32(at), int32(never)) }

func (p *pause) wait() {
	until := p.until
	close(p.held)
	<-until
}

type paused struct {
	*net.TCPConn
	pause  *pause
	rest   []byte // of what was read
	halved bool
}

// SyscallConn is called by the pool before it gives the connection to a command.
func (p *paused) SyscallConn() (syscall.RawConn, error) {
	if p.pause.reached(beforeWrite) {
		p.pause.wait()
	}
	return p.TCPConn.SyscallConn()
}

func (p *paused) Write(b []byte) (n int, err error) {
	if p.pause.reached(inWrite) {
		if n, err = p.TCPConn.Write(b[:len(b)/2]); err != nil {
			return n, err
		}
		p.pause.wait()
	}
	if p.pause.reached(beforeReply) { // it is on its way
		_ = p.SetWriteDeadline(time.Time{})
		go func(b []byte) {
			p.pause.wait()
			_, _ = p.TCPConn.Write(b)
		}(slices.Clone(b))
		return len(b), nil
	}
	m, err := p.TCPConn.Write(b[n:])
	return n + m, err
}

func (p *paused) Read(b []byte) (n int, err error) {
	if p.halved {
		p.halved = false
		p.pause.wait()
	}
	if len(p.rest) == 0 {
		if n, err = p.TCPConn.Read(b); n < 2 || !p.pause.reached(inReply) {
			return n, err
		}
		p.halved, p.rest = true, slices.Clone(b[n/2:n])
		return n / 2, err
	}
	n = copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// TestLoneCallerLeaves: the context of a lone caller ends at each instant of its round trip. The
// caller returns at once, and learns whether the call is perhaps counted. The connection is
// used on, and its next user gets an answer of its own.
func TestLoneCallerLeaves(t *testing.T) {
	args, trusting := redistest.Certificate(t)
	server := redistest.Start(t, args...)
	for _, link := range []struct {
		name string
		redis.Options
	}{
		{"TCP", redis.Options{Addr: server.Addr()}},
		{"TLS", redis.Options{Addr: server.ListenTLS(t), TLSConfig: trusting}},
	} {
		for _, apart := range []bool{false, true} {
			t.Run(fmt.Sprint(link.name, ", DisableBatching ", apart), func(t *testing.T) {
				l := newLeaver(t, link.Addr, link.TLSConfig, apart)
				for at := beforeWrite; at <= inReply; at++ {
					l.leaves(t, at)
				}
			})
		}
	}
}

const leaveBudget = 200 * time.Millisecond

// leaver calls by one connection, and leaves.
type leaver struct {
	*batch.Queue
	pause  *pause
	client *redis.Client
	keys   int
}

func newLeaver(t *testing.T, addr string, config *tls.Config, apart bool) *leaver {
	l := &leaver{pause: &pause{}}
	o := client.Named(&redis.Options{Addr: addr, TLSConfig: config, Dialer: l.pause.dial}, leaveBudget, net.DefaultResolver.LookupIPAddr)
	o.MinIdleConns = 0
	l.client = redis.NewClient(o)
	t.Cleanup(func() { _ = l.client.Close() })
	set := batch.Settings{Prefix: names.DefaultPrefix, Budget: leaveBudget, Shared: &layer.Shared{}, DisableBatching: apart}
	l.Queue = batch.NewQueue(batch.NewServer(client.Made{Client: l.client}, "node", set), nil)
	require.Eventually(t, func() bool { return l.ask(t.Context(), "warm", 1).Err == nil }, 10*time.Second, time.Millisecond)
	return l
}

var leaverPolicy = []backend.Policy{{Name: "p", Algorithm: algo.TokenBucket(algo.Per(1, 24*time.Hour), 1000)}}

func (l *leaver) ask(ctx context.Context, key string, cost int64) (a backend.Answer) {
	a.Err = l.Do(ctx, names.Tag(key, ""), 0, &backend.Request{
		Op: backend.Take, Group: backend.Group{Key: key, Policies: leaverPolicy, Cost: cost},
	}, &a.Decision)
	return a
}

// leaves holds round trips at the instant, for a moment and for longer than the budget, and has
// their callers leave. The median counts, beside that of goroutines that only wait for the
// context: a busy machine is not the subject.
func (l *leaver) leaves(t *testing.T, at instant) {
	t.Helper()
	var took, bare []time.Duration
	for i := range redistest.Steps(9, 31) {
		held := leaveBudget / 50
		if i < 2 && at != inWrite { // a write has no more time than the budget
			held = leaveBudget * 3 / 2
		}
		call, wait := l.leave(t, at, held, i%2 == 1)
		took, bare = append(took, call), append(bare, wait)
	}
	slices.Sort(took)
	slices.Sort(bare)
	t.Logf("%d: median %v, longest %v; of a bare wait %v, %v", at, took[len(took)/2], took[len(took)-1], bare[len(bare)/2], bare[len(bare)-1])
	require.Less(t, took[len(took)/2], bare[len(bare)/2]+2*time.Millisecond, "%d", at)
}

// leave has the caller of one call leave, and returns how long that took, and how long a bare
// wait took. The context ends by a deadline of its own, or is cancelled.
func (l *leaver) leave(t *testing.T, at instant, held time.Duration, timed bool) (call, wait time.Duration) {
	t.Helper()
	l.keys++
	key := fmt.Sprint(t.Name(), l.keys)
	ctx, leave := context.WithCancel(t.Context())
	if timed {
		ctx, leave = context.WithTimeout(t.Context(), leaveBudget/4)
	}
	defer leave()
	l.pause.hold(at)
	answered, woken := make(chan error, 1), make(chan time.Time, 1)
	go func() { answered <- l.ask(ctx, key, 7).Err }()
	<-l.pause.held
	go func() { <-ctx.Done(); woken <- time.Now() }()
	end := time.Now()
	if timed {
		end, _ = ctx.Deadline()
	} else {
		leave()
	}
	err := <-answered
	call, wait = time.Since(end), (<-woken).Sub(end)
	require.ErrorIs(t, err, ctx.Err())
	require.Equal(t, at > beforeWrite, errors.Is(err, backend.ErrPerhapsCounted), "%d: %v", at, err)
	time.Sleep(held)
	close(l.pause.until)
	l.goesOn(t, key, at)
	return call, wait
}

// goesOn looks at the connection after a caller of 7 units has left.
func (l *leaver) goesOn(t *testing.T, key string, at instant) {
	t.Helper()
	require.Eventually(t, func() bool { return l.client.PoolStats().IdleConns > 0 }, 5*time.Second, time.Millisecond, "%d", at)
	next := l.ask(t.Context(), "next"+key, 3)
	require.NoError(t, next.Err)
	require.EqualValues(t, 3, next.Decision.Used, "%d: an answer of its own", at)
	charged := int64(7)
	if at == beforeWrite {
		charged = 0
	}
	require.Equal(t, charged, l.ask(t.Context(), key, 1).Decision.Used-1, "%d", at)
	stats := l.client.PoolStats()
	require.Equal(t, [3]uint32{1, 1, 0}, [3]uint32{stats.Misses, stats.TotalConns, stats.StaleConns}, "%d: one connection, used on", at)
}
