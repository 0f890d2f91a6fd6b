package sim

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// path is the way between a process and a node.
type path struct {
	proc int
	addr string // of the node
}

// link is what a path does to packets.
type link struct {
	delay    time.Duration // one way, at least
	jitter   time.Duration // and at most so much more
	slow     time.Duration // that a fault adds
	loss     float64       // of packets, which TCP sends again
	swallows float64       // of replies, which nothing sends again
	blocked  bool          // nothing passes; it is sent again when the link is back
	refused  bool          // dials are refused
	held     []func()      // packets that wait for the link
}

// bandwidth is that of a thin link, in bytes per second.
const bandwidth = 40_000_000

// resend is when TCP sends a lost packet again, at first.
const resend = 200 * time.Millisecond

// far is what a far link takes longer each way.
const far = 20 * time.Millisecond

// link returns the link of a path, which it makes at first.
func (w *World) link(proc int, addr string) *link {
	p := path{proc, addr}
	l := w.links[p]
	if l == nil {
		d := w.dice("link", proc, addr)
		l = &link{delay: 50*time.Microsecond + time.Duration(d.IntN(400))*time.Microsecond, jitter: 300 * time.Microsecond}
		switch {
		case w.plan.Uneven:
			l.jitter = far
		case w.plan.Far:
			l.delay += far
		}
		if w.host != nil {
			l.delay += apiece
		}
		if w.plan.Distant {
			l.delay += 10 * time.Millisecond
		}
		if w.plan.Lone {
			l.delay += far
		}
		w.links[p] = l
	}
	return l
}

// passes calls f when a packet has passed the link: in order with those that were sent
// before it the same way.
func (w *World) passes(l *link, way *direction, label string, size int, f func()) {
	if l.blocked {
		l.held = append(l.held, func() { w.passes(l, way, label, size, f) })
		return
	}
	way.packets++
	h := w.hashOf(label, way.packets)
	delay := l.delay + l.slow + time.Duration(h%uint64(l.jitter))
	if float64(mix(h)>>11)/(1<<53) < l.loss {
		delay += resend + time.Duration(mix(mix(h))%uint64(resend))
	}
	now := time.Now().UnixNano()
	if w.plan.Thin {
		way.sent = max(way.sent, now) + int64(size)*int64(time.Second)/bandwidth
		delay += time.Duration(way.sent - now)
	}
	delay = max(delay, time.Duration(way.last+grid-now))
	way.last = w.at(delay, f).UnixNano()
}

// unblock lets what waits pass.
func (w *World) unblock(l *link) {
	held := l.held
	l.blocked, l.held = false, nil
	for _, pass := range held {
		pass()
	}
}

// dialled is how a dial ended.
type dialled struct {
	conn *conn
	err  error
}

// waiting is one dial.
type waiting struct {
	ended chan dialled
	left  atomic.Bool // its caller has
}

// dialing are the dials of one process to one address at one instant. They end alike and at
// once, since nothing distinguishes them.
type dialing struct {
	to      path
	waiting []*waiting
}

// dialer returns the dialer of a process.
func (w *World) dialer(proc int) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		d := &waiting{ended: make(chan dialled, 1)}
		w.submit(op{proc: proc, to: addr, what: "dial", run: func() { w.dial(path{proc, addr}, d) }})
		select {
		case d := <-d.ended:
			if d.err != nil {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(addr), Err: d.err}
			}
			return d.conn, nil
		case <-ctx.Done():
			d.left.Store(true)
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(addr), Err: ctx.Err()}
		}
	}
}

// dial is run by the network, at the end of the instant of the dial.
func (w *World) dial(to path, d *waiting) {
	w.note(fmt.Sprintf("p%d", to.proc), "dial begins")
	if g := w.dialing[to]; g != nil {
		g.waiting = append(g.waiting, d)
		return
	}
	g := &dialing{to: to, waiting: []*waiting{d}}
	w.dialing[to] = g
	w.at(0, func() { delete(w.dialing, to); w.connect(g) }) // those of this instant are in it
}

// connect sends a SYN, and as many more round trips as TLS takes.
func (w *World) connect(g *dialing) {
	n := w.resolve(g.to.addr) // a name leads elsewhere after a failover
	if g.to.addr == silent {
		return
	}
	if n == nil {
		g.end(dialled{err: syscall.EHOSTUNREACH})
		return
	}
	l := w.link(g.to.proc, n.addr)
	w.dials[g.to]++
	label := fmt.Sprintf("dial p%d/%s#%d", g.to.proc, g.to.addr, w.dials[g.to])
	w.note(fmt.Sprintf("p%d", g.to.proc), fmt.Sprintf("%d %s", len(g.waiting), label))
	trips := 1 + 2*w.plan.handshakes()
	var way direction
	again := 0
	var trip func(left int)
	trip = func(left int) {
		switch {
		case n.dark: // nothing comes back, and a SYN is sent again after a second, two, and four
			if again++; again < 4 {
				w.at(time.Second<<(again-1), func() { trip(left) })
			}
		case n.down || l.refused:
			w.passes(l, &way, label, 0, func() { g.end(dialled{err: syscall.ECONNREFUSED}) })
		case left == 0:
			w.occupy(g.to.proc, reading, false, func() { g.connected(w, n) })
		default:
			w.passes(l, &way, label, 0, func() { w.passes(l, &way, label, 0, func() { trip(left - 1) }) })
		}
	}
	trip(trips)
}

func (g *dialing) end(d dialled) {
	for _, c := range g.waiting {
		c.ended <- d
	}
}

func (g *dialing) connected(w *World, n *node) {
	for _, d := range g.waiting {
		if d.left.Load() {
			continue
		}
		c := &conn{world: w, proc: g.to.proc, addr: g.to.addr, node: n, life: n.life, born: time.Now(), wake: make(chan struct{}, 1)}
		n.conns = append(n.conns, c)
		d.ended <- dialled{conn: c}
	}
}

// send passes a packet to the node.
func (w *World) send(c *conn, packet string) {
	label := c.label(func() int {
		w.named[path{c.proc, c.addr}]++
		return w.named[path{c.proc, c.addr}]
	})
	w.note(label, fmt.Sprintf("send %d bytes", len(packet)))
	if c.gone {
		return
	}
	w.passes(w.link(c.proc, c.node.addr), &c.up, label+" up", len(packet), func() {
		w.occupy(w.plan.Procs, reading, false, func() { c.node.arrives(c, packet) })
	})
}

// reply passes a packet to the process. The node may have taken some time for it.
func (w *World) reply(c *conn, took time.Duration, packet []byte) {
	if c.gone || len(packet) == 0 {
		return
	}
	w.at(took, func() {
		label := c.label(nil)
		l := w.link(c.proc, c.node.addr)
		if float64(w.hashOf("swallow", label, c.down.packets)>>11)/(1<<53) < l.swallows {
			c.down.packets++
			return
		}
		w.passes(l, &c.down, label+" down", len(packet), func() {
			if !c.gone {
				w.note(label, fmt.Sprintf("receive %d bytes", len(packet)))
				w.occupy(c.proc, reading, false, func() { c.deliver(packet) })
			}
		})
	})
}

// reset ends a connection from the node's side: its process has ended, or never had it.
func (w *World) reset(c *conn, err error) {
	if c.gone {
		return
	}
	w.passes(w.link(c.proc, c.node.addr), &c.down, "reset", 0, func() { w.occupy(c.proc, reading, false, func() { c.finish(err) }) })
}

// closed is called when a process closes a connection.
func (w *World) closed(c *conn) {
	w.submit(op{proc: c.proc, to: c.addr, what: "shut", order: c.mu.number, run: func() { c.node.forget(c) }})
}

// cuts are the errors with which a connection ends.
var cuts = [...]error{io.EOF, syscall.ECONNRESET}
