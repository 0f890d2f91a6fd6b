package bounded_test

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/headgate-go/headgate/cmd/headgated/internal/bounded"
	"github.com/stretchr/testify/require"
)

// accepted is a connection on both sides.
type accepted struct {
	client net.Conn
	server *bounded.Conn
}

func (a accepted) open(t testing.TB) bool {
	t.Helper()
	require.NoError(t, a.client.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := a.client.Read(make([]byte, 1))
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

func listener(t testing.TB, most int) (*bounded.Listener, func() accepted) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := bounded.New(inner, most, nil)
	t.Cleanup(func() { _ = l.Close() })
	return l, func() accepted {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		s, err := l.Accept()
		require.NoError(t, err)
		return accepted{c, bounded.Of(s.RemoteAddr())}
	}
}

// TestLongestIdle: the connection whose last request is the oldest makes room.
func TestLongestIdle(t *testing.T) {
	l, dial := listener(t, 3)
	a, b, c := dial(), dial(), dial()
	use(a, b, c, a)
	d := dial()
	require.True(t, a.open(t))
	require.False(t, b.open(t))
	require.True(t, c.open(t))
	use(d)
	e := dial()
	require.False(t, c.open(t))
	use(e)
	f := dial()
	require.False(t, a.open(t))
	for _, x := range []accepted{d, e, f} {
		require.True(t, x.open(t))
	}
	require.Equal(t, bounded.Stats{Open: 3, Most: 3, AtBound: 3, Closed: 3}, l.Stats())
	require.NoError(t, d.server.Close())
	_ = d.server.Close()
	require.Equal(t, 2, l.Stats().Open)
	require.Nil(t, bounded.Of(a.client.RemoteAddr()))
}

func use(cs ...accepted) {
	for _, c := range cs {
		c.server.Begin()
		c.server.End()
	}
}

// TestBurst: connections that send nothing close each other, and none that has sent a request,
// once they are more than half.
func TestBurst(t *testing.T) {
	_, dial := listener(t, 4)
	a, b := dial(), dial()
	use(a, b)
	silent := []accepted{dial(), dial()}
	for range 10 {
		silent = append(silent, dial())
	}
	require.True(t, a.open(t))
	require.True(t, b.open(t))
	require.False(t, silent[len(silent)-3].open(t))
	require.True(t, silent[len(silent)-2].open(t))
	use(silent[len(silent)-2], silent[len(silent)-1])
	dial()
	require.False(t, a.open(t), "they are fewer: the longest idle one of the others")
}

// TestFirstRequest: a connection has 100 ms for its first request, however many come.
func TestFirstRequest(t *testing.T) {
	l, dial := listener(t, 2)
	begin := time.Now()
	first := dial()
	dial()
	dial()
	require.GreaterOrEqual(t, time.Since(begin), 100*time.Millisecond)
	require.False(t, first.open(t))
	require.EqualValues(t, 1, l.Stats().Closed)
}

// TestRunning: a connection whose request is being decided is not idle. If none is idle, a new
// one waits.
func TestRunning(t *testing.T) {
	l, dial := listener(t, 2)
	a, b := dial(), dial()
	a.server.Begin()
	b.server.Begin()
	admitted := make(chan accepted)
	go func() { admitted <- dial() }()
	select {
	case <-admitted:
		t.Error("a third connection was admitted")
	case <-time.After(100 * time.Millisecond):
		b.server.End()
		<-admitted
	}
	require.True(t, a.open(t))
	require.False(t, b.open(t))
	require.Equal(t, 2, l.Stats().Open)
}

// TestCloseUnread: connections are closed that have sent a part of a request, and not those whose
// requests have come.
func TestCloseUnread(t *testing.T) {
	l, dial := listener(t, 4)
	none, part, whole, another := dial(), dial(), dial(), dial()
	for _, x := range []accepted{part, whole, another} {
		x.server.Expect()
	}
	whole.server.Arrived()
	another.server.Expect()
	another.server.Arrived()
	require.Zero(t, l.CloseUnread(time.Hour))
	require.Equal(t, 2, l.CloseUnread(0))
	require.True(t, none.open(t))
	require.True(t, whole.open(t))
	require.False(t, part.open(t))
	require.False(t, another.open(t))
	require.Zero(t, l.CloseUnread(0))
}

// TestClosedWhileFull: the end of the listener ends the wait.
func TestClosedWhileFull(t *testing.T) {
	l, dial := listener(t, 1)
	dial().server.Begin()
	ended := make(chan error)
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				ended <- err
				return
			}
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-ended, net.ErrClosed)
}

// TestRest: clients that are connected when the listener is closed are served.
func TestRest(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system closes them")
	}
	l, _ := listener(t, 3)
	for range 5 {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		_, err = c.Write([]byte("x"))
		require.NoError(t, err)
	}
	require.NoError(t, l.Close())
	for range 5 {
		c, err := l.Accept()
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 1))
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
	}
	_, err := l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}
