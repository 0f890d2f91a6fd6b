package resp

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/cmd/headgated/internal/bounded"
	"github.com/stretchr/testify/require"
)

// pipes is a listener in this process, whose connections follow the clock of a bubble.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// ends returns how long a connection stays open on which these pieces are sent, one per second.
// What is answered is read.
func ends(t *testing.T, opts Options, pieces ...string) (open time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts.Observe, opts.MaxBytes = func(string, error) {}, 1<<16
		s, l := New(opts), make(pipes)
		go func() { _ = s.Serve(l) }()
		client, server := net.Pipe()
		l <- server
		begin := time.Now()
		var sent sync.WaitGroup
		sent.Go(func() {
			for _, piece := range pieces {
				_, _ = io.WriteString(client, piece)
				time.Sleep(time.Second)
			}
		})
		_, err := io.Copy(io.Discard, client)
		require.NoError(t, err)
		open = time.Since(begin)
		_ = l.Close()
		s.Shutdown(t.Context())
		sent.Wait()
	})
	return open
}

// TestDeadlines: a connection that says nothing, or not enough, ends.
func TestDeadlines(t *testing.T) {
	secure := Options{TLS: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, io.EOF }}}
	halfHello := "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
	require.Equal(t, helloWithin, ends(t, Options{}), "nothing")
	require.Equal(t, helloWithin, ends(t, secure), "no handshake")
	require.Equal(t, helloWithin, ends(t, secure, halfHello), "half a hello")
	require.Equal(t, helloWithin, ends(t, secure, "\x16", "\x03", "\x01", "\x02", "\x00", "\x01", "\x00", "\x01"), "byte by byte")
	require.Equal(t, readTimeout, ends(t, Options{}, "*", "1", "\r", "\n", "$", "4", "\r", "\n", "P", "I", "N", "G", "\r", "\n"), "byte by byte")
	require.Equal(t, time.Second+idleTimeout, ends(t, Options{}, "PING\r\n", "PING\r\n"), "idle after a command")
}

// TestDrained: each answer is the last of its connection, and what comes after it is not read.
func TestDrained(t *testing.T) {
	s := New(Options{Observe: func(string, error) {}, MaxBytes: 1 << 16})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = s.Serve(l) }()
	dial := func() (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		return c, bufio.NewReader(c)
	}
	answers := func(in *bufio.Reader, want string) {
		got := make([]byte, len(want))
		_, err := io.ReadFull(in, got)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	c, in := dial()
	_, err = io.WriteString(c, "PING\r\n")
	require.NoError(t, err)
	answers(in, "+PONG\r\n")
	s.Drain()
	_, err = io.WriteString(c, "PING a\r\nPING b\r\n")
	require.NoError(t, err)
	answers(in, "$1\r\na\r\n$1\r\nb\r\n")
	_, err = in.ReadByte()
	require.Equal(t, io.EOF, err, "no reset")
	_, err = io.WriteString(c, "PING\r\n")
	require.NoError(t, err, "it is thrown away")
	_ = c.Close()
	_ = l.Close()
	s.Shutdown(t.Context())
}

// TestAnnounced: a long string that is announced and does not come takes no memory.
func TestAnnounced(t *testing.T) {
	in := bufio.NewReader(strings.NewReader("*1\r\n$60000000\r\nx"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readCommand(in, 1<<30, &bounded.Long{})
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, io.EOF)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}
