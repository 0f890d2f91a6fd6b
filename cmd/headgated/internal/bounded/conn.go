package bounded

import (
	"container/heap"
	"net"
	"sync/atomic"
	"time"
)

// Conn is a connection of a Listener. The methods of a nil Conn do nothing.
type Conn struct {
	net.Conn
	listener  *Listener
	idleSince atomic.Int64 // by now; no request is running
	running   atomic.Int32 // requests
	used      atomic.Bool  // it has sent a request

	unread      atomic.Int32 // requests of which a part has come
	unreadSince atomic.Int64 // by now; while unread is above 0

	held atomic.Int32 // streams without an end

	// Guarded by the listener's lock.
	queue    *queue // nil: it is closed
	queuedAt int64  // idleSince as the queue has it: never later
	at       int    // place in the queue
}

// address is a remote address with its connection, so that a server's handler finds the
// connection whatever has wrapped it.
type address struct {
	net.Addr
	conn *Conn
}

// Of returns the connection of a remote address, nil if it is not one of a Listener.
func Of(remote net.Addr) *Conn {
	if a, ok := remote.(address); ok {
		return a.conn
	}
	return nil
}

// RemoteAddr returns the address, with the connection for Of.
func (c *Conn) RemoteAddr() net.Addr { return address{c.Conn.RemoteAddr(), c} }

// Begin notes that a request has begun. The connection is not idle until its End.
func (c *Conn) Begin() {
	if c == nil {
		return
	}
	c.running.Add(1)
	if !c.used.Load() && c.used.CompareAndSwap(false, true) {
		c.listener.used(c)
	}
}

// End notes that a request has ended.
func (c *Conn) End() {
	if c != nil {
		c.idleSince.Store(now())
		c.running.Add(-1)
	}
}

// Expect notes that a part of a request has come.
func (c *Conn) Expect() {
	if c == nil {
		return
	}
	if c.unread.Load() == 0 {
		c.unreadSince.Store(now())
	}
	c.unread.Add(1)
}

// Arrived notes that the rest of a request has come, or is not waited for any more.
func (c *Conn) Arrived() {
	if c != nil {
		c.unread.Add(-1)
	}
}

// Unread returns the number of requests of which a part has come.
func (c *Conn) Unread() int {
	if c == nil {
		return 0
	}
	return int(c.unread.Load())
}

// unreadFor reports whether a part of a request has waited for its rest for as long as d.
func (c *Conn) unreadFor(d time.Duration) bool {
	return c.unread.Load() > 0 && now()-c.unreadSince.Load() >= int64(d)
}

// Hold notes a stream without an end. It returns false if there are as many as may be.
func (c *Conn) Hold(most int32) bool {
	if c == nil {
		return true
	}
	if c.held.Add(1) > most {
		c.held.Add(-1)
		return false
	}
	return true
}

// Release notes that such a stream has ended.
func (c *Conn) Release() {
	if c != nil {
		c.held.Add(-1)
	}
}

// CloseWrite ends what is sent, if the connection can, and is read on.
func (c *Conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// Close closes the connection, and leaves its place to another.
func (c *Conn) Close() error {
	l := c.listener
	l.mu.Lock()
	if c.queue != nil {
		heap.Remove(c.queue, c.at)
		c.queue = nil
	}
	l.mu.Unlock()
	return c.Conn.Close()
}

// began is what now counts from.
var began = time.Now()

// now is the process's monotonic clock.
func now() int64 { return int64(time.Since(began)) }

// queue is a heap of connections by the instants since which they were idle when the queue
// saw them last. An instant only grows, so the first connection is the one that is idle
// longest if its instant is still the queue's.
type queue []*Conn

// longestIdle returns the connection that is idle longest, but not besides; nil if none is.
func (q queue) longestIdle(besides *Conn) *Conn {
	for range len(q) {
		c, since := q[0], q[0].idleSince.Load()
		//mutant:running-is-not-idle
		if c.running.Load() > 0 || c == besides {
			since = now()
		} else if since == c.queuedAt {
			return c
		}
		c.queuedAt = since
		heap.Fix(&q, 0)
	}
	return nil
}

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].queuedAt < q[j].queuedAt }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	c := x.(*Conn)
	c.queue, c.at, c.queuedAt = q, len(*q), c.idleSince.Load()
	*q = append(*q, c)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return c
}
