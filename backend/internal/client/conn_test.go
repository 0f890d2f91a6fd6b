package client_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const budget = time.Second // a busy machine is not the subject

// made returns a client as Headgate makes it, with one connection that was used.
func made(t *testing.T, o *redis.Options) *redis.Client {
	o = client.Options(o, budget)
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.Ping(context.Background()).Err())
	return c
}

// TestEndOverTLS: a connection that the server has closed is not used, over TLS too. One
// that got a ticket after its handshake is.
func TestEndOverTLS(t *testing.T) {
	args, trusting := redistest.Certificate(t)
	server := redistest.Start(t, args...)
	relay := redistest.NewRelay(t, server.ListenTLS(t), 0)
	for _, config := range []*tls.Config{nil, trusting} {
		addr := server.Addr()
		if config != nil {
			addr = relay.Addr()
		}
		c := made(t, &redis.Options{Addr: addr, TLSConfig: config})
		for range 5 {
			require.NoError(t, server.Client(t).ClientKillByFilter(context.Background(), "TYPE", "normal", "SKIPME", "yes").Err())
			time.Sleep(100 * time.Millisecond) // until the end has arrived
			require.NoError(t, c.Ping(context.Background()).Err())
		}
		dialled := relay.Dialled()
		for range 5 {
			require.NoError(t, c.Ping(context.Background()).Err())
		}
		require.Equal(t, dialled, relay.Dialled())
		require.EqualValues(t, 1, c.PoolStats().TotalConns)
	}
}

// TestFreshConnectionsOverTLS: those that were dialled ahead got tickets for sessions, and
// are used all the same.
func TestFreshConnectionsOverTLS(t *testing.T) {
	args, trusting := redistest.Certificate(t)
	relay := redistest.NewRelay(t, redistest.Start(t, args...).ListenTLS(t), 0)
	o := client.Options(&redis.Options{Addr: relay.Addr(), TLSConfig: trusting, MinIdleConns: 2}, budget)
	c := redis.NewClient(o)
	defer c.Close()
	require.Eventually(t, func() bool { return c.PoolStats().TotalConns == 2 }, 5*time.Second, time.Millisecond)
	time.Sleep(20 * time.Millisecond) // until the tickets are there
	done := make(chan error, 5)
	go func() {
		for range 5 {
			done <- c.Ping(context.Background()).Err()
		}
	}()
	for range 5 {
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(5 * time.Second):
			t.Fatal("a pool reads a ticket, and waits for more")
		}
	}
	require.LessOrEqual(t, relay.Dialled(), 3)
}

// TestSilentConnection: something on the way has forgotten a connection that was idle
// for long. It is replaced within the budget; one that still answers stays.
func TestSilentConnection(t *testing.T) {
	t.Cleanup(client.SetSilence(300 * time.Millisecond))
	args, trusting := redistest.Certificate(t)
	server := redistest.Start(t, args...)
	for _, o := range []*redis.Options{{Addr: server.Addr()}, {Addr: server.ListenTLS(t), TLSConfig: trusting}} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			relay := redistest.NewRelay(t, o.Addr, time.Millisecond)
			o.Addr = relay.Addr()
			c := made(t, o)
			for _, patience := range []time.Duration{0, 450 * time.Millisecond} {
				relay.ForgetSilent(patience)
				time.Sleep(600 * time.Millisecond)
				begin := time.Now()
				require.NoError(t, c.Ping(context.Background()).Err())
				require.Less(t, time.Since(begin), budget)
			}
			require.LessOrEqual(t, relay.Dialled(), 3, "the one that was dialled beside is used")
		})
	}
}

// TestSilentTogether: of many connections that were forgotten, one is tried.
func TestSilentTogether(t *testing.T) {
	defer client.SetSilence(100 * time.Millisecond)()
	relay := redistest.NewRelay(t, redistest.Start(t).Addr(), 0)
	c := made(t, &redis.Options{Addr: relay.Addr()})
	var held []*redis.Conn
	for range 20 {
		one := c.Conn()
		require.NoError(t, one.Ping(context.Background()).Err())
		held = append(held, one)
	}
	for _, one := range held {
		require.NoError(t, one.Close())
	}
	relay.ForgetSilent(150 * time.Millisecond)
	time.Sleep(200 * time.Millisecond)
	begin := time.Now()
	require.NoError(t, c.Ping(context.Background()).Err())
	require.Less(t, time.Since(begin), budget*3/4, "a trial takes half of it")
	require.Equal(t, len(held)+1, relay.Dialled())
}

// TestReplicaLeft: a name leads to a new primary, and the old one serves as its replica. Of
// the idle connections to the old one only one carries a request.
func TestReplicaLeft(t *testing.T) {
	old, primary := redistest.Start(t), redistest.Start(t)
	var addr atomic.Value
	addr.Store(old.Addr())
	c := made(t, &redis.Options{Addr: old.Addr(), Dialer: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("tcp", addr.Load().(string))
	}})
	var held []*redis.Conn
	for range 10 {
		one := c.Conn()
		require.NoError(t, one.Ping(t.Context()).Err())
		held = append(held, one)
	}
	for _, one := range held {
		require.NoError(t, one.Close())
	}
	host, port, _ := net.SplitHostPort(primary.Addr())
	require.NoError(t, old.Client(t).Do(t.Context(), "replicaof", host, port).Err())
	addr.Store(primary.Addr())
	require.ErrorContains(t, c.Set(t.Context(), "k", 1, 0).Err(), "READONLY")
	require.NoError(t, c.Set(t.Context(), "k", 1, 0).Err())
	require.Equal(t, "1", primary.Client(t).Get(t.Context(), "k").Val())
}

// TestFarIsNotTried: over a link where a trial and a script take longer than the budget,
// the system's keep-alive has to do.
func TestFarIsNotTried(t *testing.T) {
	defer client.SetSilence(100 * time.Millisecond)()
	relay := redistest.NewRelay(t, redistest.Start(t).Addr(), budget*6/10)
	c := made(t, &redis.Options{Addr: relay.Addr()})
	time.Sleep(200 * time.Millisecond)
	begin := time.Now()
	require.NoError(t, c.Ping(context.Background()).Err())
	require.Less(t, time.Since(begin), budget)
}

// TestDialsAfterAnOutage: a connection that opens shows that the link is back. Dials that
// began while it dropped packets send their next SYN then.
func TestDialsAfterAnOutage(t *testing.T) {
	server, link := redistest.StartBehindLink(t)
	o := client.Options(&redis.Options{Addr: server.Addr()}, budget)
	c := redis.NewClient(o)
	defer c.Close()
	ping := func() error {
		held := c.Conn()
		defer held.Close()
		return held.Ping(context.Background()).Err()
	}
	held := c.Conn() // the system knows the way to the server
	defer held.Close()
	require.NoError(t, held.Ping(context.Background()).Err())
	link.Drop()
	early := make(chan error, 1)
	go func() { early <- ping() }()
	time.Sleep(350 * time.Millisecond) // SYNs leave after 100, 300, 700 ms
	link.Pass()
	begin := time.Now()
	require.NoError(t, ping())
	require.NoError(t, <-early)
	t.Log(time.Since(begin))
	if redistest.Long() { // beside other tests a ping may take as long
		require.Less(t, time.Since(begin), 200*time.Millisecond)
	}
}

// TestAddressesRaced: the first address of a name is silent. The one that answered is
// tried first from then on.
func TestAddressesRaced(t *testing.T) {
	server := redistest.Start(t)
	_, port, _ := net.SplitHostPort(server.Addr())
	old := net.DefaultResolver
	defer func() { net.DefaultResolver = old }()
	net.DefaultResolver = redistest.Resolver(redistest.Silent(t, port), "127.0.0.1")
	o := client.Options(&redis.Options{Addr: net.JoinHostPort("redis.test", port)}, budget)
	c := redis.NewClient(o)
	defer c.Close()
	var took []time.Duration
	for range 3 {
		held := c.Conn() // so that the next one is dialled
		defer held.Close()
		begin := time.Now()
		require.NoError(t, held.Ping(context.Background()).Err())
		took = append(took, time.Since(begin))
	}
	t.Log(took)
	require.Less(t, slices.Max(took), budget)
}

// TestLostHello: a connection whose HELLO has no answer ends long before the dial timeout. It is
// closed, and its place in the pool is free.
func TestLostHello(t *testing.T) {
	defer client.SetHandshake(20 * time.Millisecond)()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	o := client.Options(&redis.Options{Addr: silent.Addr().String(), DialTimeout: time.Minute, PoolSize: 1}, 5*time.Millisecond)
	c := redis.NewClient(o)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	require.Error(t, c.Ping(ctx).Err())
	require.NoError(t, ctx.Err())
	require.Zero(t, c.PoolStats().TotalConns)
	first, err := silent.Accept()
	require.NoError(t, err)
	defer first.Close()
	require.NoError(t, first.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, err = io.Copy(io.Discard, first)
	require.NoError(t, err, "the client has closed it")
}

// TestEndBeforeHello: the error of a connection that ends before the reply of HELLO is why
// it ended, and not that it was then closed here.
func TestEndBeforeHello(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // or an idle connection would keep the others waiting
				_, _ = c.Read(make([]byte, 1))
				_ = c.(*net.TCPConn).CloseWrite()
			}()
		}
	}()
	c := redis.NewClient(client.Options(&redis.Options{Addr: l.Addr().String()}, budget))
	defer c.Close()
	require.ErrorIs(t, c.Ping(t.Context()).Err(), io.EOF)
}

// TestTriedBeforeHandshake: a connection that has answered a PING before its HELLO, and does not
// answer that, is closed.
func TestTriedBeforeHandshake(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	go func() {
		_, _ = there.Read(make([]byte, 64))
		_, _ = there.Write([]byte("+PONG\r\n"))
	}()
	c, err := client.Tried(here, time.Minute)
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, err = c.Read(make([]byte, 64))
	require.Error(t, err)
	_, err = here.Write([]byte{1})
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

// TestLongerThanBudgetIsTried: the last round trips were longer than the budget, so no call
// can be answered unless the link is shorter by now. A connection that was forgotten
// meanwhile is replaced.
func TestLongerThanBudgetIsTried(t *testing.T) {
	relay := redistest.NewRelay(t, redistest.Start(t).Addr(), budget*12/10)
	c := made(t, &redis.Options{Addr: relay.Addr()})
	defer client.SetSilence(100 * time.Millisecond)() // a silence is longer than a round trip
	relay.SetRoundTrip(0)
	relay.ForgetSilent(150 * time.Millisecond)
	time.Sleep(200 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), budget)
	defer cancel()
	require.NoError(t, c.Ping(ctx).Err())
}

// TestPatience: an idle connection has half of the budget to answer, less over a longer link,
// and always the time of a round trip.
func TestPatience(t *testing.T) {
	const budget = 100 * time.Millisecond
	for trip, want := range map[time.Duration]time.Duration{
		0: 50 * time.Millisecond, 5 * time.Millisecond: 50 * time.Millisecond, 10 * time.Millisecond: 30 * time.Millisecond,
		40 * time.Millisecond: 60 * time.Millisecond,
	} {
		require.Equal(t, want, client.Patience(budget, trip), trip)
	}
}

// TestLateWrite: a process that is late between the deadline of a write and the write has the time of
// that all the same. A write that takes longer ends.
func TestLateWrite(t *testing.T) {
	near, far := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	c := client.Dialled(near, time.Second)
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
	time.Sleep(60 * time.Millisecond)
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, c.SetWriteDeadline(time.Time{}))
	_, err = c.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, far.Close())

	near, far = net.Pipe() // that nobody reads
	defer time.AfterFunc(time.Second, func() { _ = far.Close() }).Stop()
	c = client.Dialled(near, time.Second)
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
	_, err = c.Write([]byte("x"))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}
