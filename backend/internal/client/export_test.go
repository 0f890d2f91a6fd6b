package client

import (
	"net"
	"time"
)

// Tried returns a connection that was dialled ahead and has answered a PING, before its handshake.
func Tried(c net.Conn, budget time.Duration) (net.Conn, error) {
	n := Dialled(c, budget)
	return n, n.(*conn).ping()
}

// Dialled returns a connection as a client with our Options has it.
func Dialled(c net.Conn, budget time.Duration) net.Conn {
	return newConn(c, &racer{budget: budget, trips: &Trips{}}, "tcp", "")
}

// SetSilence makes a connection silent after d. The returned function undoes it.
func SetSilence(d time.Duration) (undo func()) {
	old := silence
	silence = d
	return func() { silence = old }
}

// SetHandshake makes a connection wait for the reply of HELLO for d. The returned function
// undoes it.
func SetHandshake(d time.Duration) (undo func()) {
	old := handshake
	handshake = d
	return func() { handshake = old }
}
