//go:build !386 && !s390x

package client

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// replies returns a connection to a peer that answers each write at once.
func replies(t *testing.T) *conn {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		c, err := ln.Accept()
		for b := make([]byte, 16); err == nil; _, err = c.Write(b[:1]) {
			if _, err = c.Read(b); err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return newConn(c, &racer{budget: time.Second, trips: &Trips{}}, "tcp", "")
}

// TestOwnLatenessIsNoTrip: a reply that lies in the socket before it is read was on the way for
// as long as the kernel says.
func TestOwnLatenessIsNoTrip(t *testing.T) {
	c := replies(t)
	_, err := c.Write([]byte("PING"))
	require.NoError(t, err)
	time.Sleep(500 * time.Millisecond)
	_, err = c.Read(make([]byte, 16))
	require.NoError(t, err)
	require.Positive(t, c.racer.trips.Shortest())
	require.Less(t, c.racer.trips.Shortest(), 250*time.Millisecond)
}

// TestArrivedReplyIsRead: a reply is read that came before the deadline, and after it is read.
func TestArrivedReplyIsRead(t *testing.T) {
	c := replies(t)
	c.answered.Store(true) // its handshake
	_, err := c.Write([]byte("PING"))
	require.NoError(t, err)
	time.Sleep(200 * time.Millisecond)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(-time.Millisecond)))
	n, err := c.Read(make([]byte, 16))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = c.Read(make([]byte, 16))
	require.True(t, isTimeout(err), "nothing more has come")
}
