// Package bounded has listeners that keep no more than a number of connections open. At the bound
// the connection that is idle longest is closed for a new one. So strangers who connect and send
// nothing exclude no client. While more than half of the connections have not sent a request, it
// is one of those. So a burst of them closes no other. Each of them has a time for its first
// request, and a new connection waits for as long.
//
// A connection is idle since its last request ended, or since it was accepted. Bytes that are
// no request, such as keepalives, do not count. A connection with a request that is being
// decided is not idle. If no connection is idle, the new one waits.
package bounded

import (
	"cmp"
	"container/heap"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Listener is a net.Listener. Make one with New.
type Listener struct {
	net.Listener
	most   int
	failed func(error) // an accept failed, and is repeated; nil is none
	ended  chan struct{}
	end    sync.Once
	stats  struct{ atBound, closed atomic.Int64 }

	mu struct {
		sync.Mutex
		fresh, used queue      // connections without a request, and the others
		rest        []net.Conn // what Accept returns after Close
	}
}

// Stats are numbers of a Listener.
type Stats struct {
	Open, Most      int
	AtBound, Closed int64 // accepts that met the bound, and connections that were closed for them
}

// New returns a listener with at most most open connections. failed receives the errors after
// which the listener goes on, as when the process has no more files.
func New(l net.Listener, most int, failed func(error)) *Listener {
	return &Listener{Listener: l, most: most, failed: failed, ended: make(chan struct{})}
}

// Stats returns the listener's numbers.
func (l *Listener) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Open: l.open(), Most: l.most, AtBound: l.stats.atBound.Load(), Closed: l.stats.closed.Load()}
}

// Close ends the listener. Connections stay open, and Accept first returns those whose clients
// are connected already.
func (l *Listener) Close() error {
	l.end.Do(func() {
		l.mu.Lock()
		l.mu.rest = rest(l.Listener)
		l.mu.Unlock()
		close(l.ended)
	})
	return l.Listener.Close()
}

// takeRest returns one of the rest, nil if there is none.
func (l *Listener) takeRest() (c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.rest) > 0 {
		c, l.mu.rest = l.mu.rest[0], l.mu.rest[1:]
	}
	return c
}

// forFirst is the time that a connection has for its first request before it makes room. The
// most that can come and send nothing meanwhile is half of the bound, however fast they come.
const forFirst = 100 * time.Millisecond

// The pauses after a failed accept are those of net/http.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// Accept returns the next connection. Its error means that the listener is closed. After any
// other one, as when the process has no more files, it closes the connection that is idle longest
// and tries again.
func (l *Listener) Accept() (net.Conn, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		c, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			//mutant:rest-is-served
			if c = l.takeRest(); c == nil {
				return nil, err
			}
			err = nil
		}
		//mutant:accept-goes-on
		if err == nil {
			return l.admit(c), nil
		}
		if l.failed != nil {
			l.failed(err)
		}
		if l.closeIdle(nil) {
			pause = firstPause
		}
		l.wait(pause)
	}
}

// wait returns after a time, or when the listener is closed.
func (l *Listener) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.ended:
	}
}

// admit counts a connection, and makes room for it.
func (l *Listener) admit(inner net.Conn) net.Conn {
	c := &Conn{Conn: inner, listener: l}
	c.idleSince.Store(now())
	l.mu.Lock()
	heap.Push(&l.mu.fresh, c)
	l.mu.Unlock()
	if l.full() {
		l.stats.atBound.Add(1)
	}
	//mutant:bound-makes-room
	for l.full() && !l.closeIdle(c) && !l.isClosed() {
		l.wait(firstPause)
	}
	c.idleSince.Store(now()) // it is served from now on
	return c
}

func (l *Listener) isClosed() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

func (l *Listener) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open() > l.most
}

// open returns the number of connections. The lock is held.
func (l *Listener) open() int { return len(l.mu.fresh) + len(l.mu.used) }

// used notes a connection's first request.
func (l *Listener) used(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.queue != nil {
		heap.Remove(c.queue, c.at)
		heap.Push(&l.mu.used, c)
	}
}

// closeIdle closes the connection that is idle longest, but not besides. It reports whether
// there was one.
func (l *Listener) closeIdle(besides *Conn) bool {
	l.mu.Lock()
	c := l.longestIdle(besides)
	l.mu.Unlock()
	if c == nil {
		return false
	}
	l.stats.closed.Add(1)
	_ = c.Close()
	return true
}

// CloseUnread closes the connections of which a part of a request has waited for its rest for as
// long as d, and returns their number.
func (l *Listener) CloseUnread(d time.Duration) int {
	l.mu.Lock()
	all := slices.Concat(l.mu.fresh, l.mu.used)
	l.mu.Unlock()
	all = slices.DeleteFunc(all, func(c *Conn) bool { return !c.unreadFor(d) })
	for _, c := range all {
		_ = c.Close()
	}
	return len(all)
}

// longestIdle returns the connection that makes room, nil if there is none yet. The lock is
// held.
func (l *Listener) longestIdle(besides *Conn) *Conn {
	//mutant:fresh-go-first
	if len(l.mu.fresh) <= l.most/2 {
		return cmp.Or(l.mu.used.longestIdle(besides), l.mu.fresh.longestIdle(besides))
	}
	c := l.mu.fresh.longestIdle(besides)
	//mutant:time-for-first
	if c != nil && now()-c.queuedAt < int64(forFirst) {
		return nil
	}
	return cmp.Or(c, l.mu.used.longestIdle(besides))
}
