package client

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// stagger is how long an address of a name has before the next one is tried as well.
// After the last one all are tried again, four times as long later and then twice as
// long each time, or when another connection opens. The system sends a lost SYN again
// after a second only.
const stagger = 25 * time.Millisecond

// doublings is how often that time doubles at most. Many dials that were hurried would else
// make it overflow.
const doublings = 10

// keepAlive lets the system find out, while a connection is silent, that no host answers
// on it any more. It also keeps middleboxes from forgetting the connection.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 5}

// racer dials a server. net.Dialer tries the addresses of one family one after the
// other, and waits for the first one for half of the dial timeout or longer.
type racer struct {
	tls    *tls.Config
	budget time.Duration
	user   dialer // the user's own; nil: the addresses are raced
	lookup Lookup // of the simulator, which races the addresses with the user's dialer; else nil
	trips  *Trips
	closed atomic.Bool // the client is closing: nothing is tried or kept any more
	// demoted is when the last request was written that a replica refused, as
	// Now. Connections that are older may lead to that replica.
	demoted atomic.Int64
	mu      struct {
		sync.Mutex
		best  string             // the address that answered last
		open  chan struct{}      // see opens
		spare net.Conn           // was dialled beside a connection's trial
		kept  time.Time          // when it was
		conns map[*conn]struct{} // those of the pool
	}
}

// newDialer returns a dialer whose connections report how they are; see conn.
func newDialer(o *redis.Options, budget time.Duration, lookup Lookup) dialer {
	r := &racer{tls: o.TLSConfig, user: o.Dialer, budget: budget, lookup: lookup, trips: &Trips{}}
	r.mu.open, r.mu.conns = make(chan struct{}), map[*conn]struct{}{}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if found, ok := ctx.Value(self{}).(*(*racer)); ok {
			*found = r
			return nil, net.ErrClosed
		}
		c := r.takeSpare()
		if c == nil {
			var err error
			begin := Now()
			if c, err = r.dial(ctx, network, addr); err != nil {
				return nil, err
			}
			r.trips.Dialled(Now() - begin)
		}
		return r.track(newConn(c, r, network, addr))
	}
}

// track notes a connection until it is closed. It closes one that comes after close.
func (r *racer) track(c *conn) (net.Conn, error) {
	r.mu.Lock()
	late := r.closed.Load()
	if !late {
		r.mu.conns[c] = struct{}{}
	}
	r.mu.Unlock()
	//mutant:late-connection-closed
	if late {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	return c, nil
}

// self marks the context of a dial that is none: the dialer writes its racer there. A
// go-redis client holds nothing else of ours.
type self struct{}

// racerOf returns the racer of a client with our Options.
func racerOf(o *redis.Options) (r *racer) {
	if c, err := o.Dialer(context.WithValue(context.Background(), self{}, &r), "", ""); err == nil {
		_ = c.Close()
	}
	return r
}

// Close closes a client with our Options. go-redis asks each idle connection for its socket
// before it closes it, one after the other. A trial of each would take a budget where the
// server is silent.
//
// go-redis also prints a line for a command that has its reply when the pool is closed, and not
// yet given its connection back. So the connections end first, and with them the commands that
// wait for a reply. Close waits until no connection was in use for a while. A command that is
// about to take one meets a closed one meanwhile, and gives it up.
func Close(c *redis.Client) error {
	//mutant:close-tries-nothing
	racerOf(c.Options()).close()
	//mutant:close-prints-nothing
	for looks, unused := 0, 0; looks < lookedAtClose && unused < unusedAtClose; looks++ {
		if unused++; inUse(c) > 0 {
			unused = 0
		}
		time.Sleep(Pause)
	}
	return c.Close()
}

// The looks of Close at the connections: how many find none in use, and how many there are.
const (
	unusedAtClose = 10
	lookedAtClose = 500
)

func (r *racer) close() {
	r.mu.Lock()
	r.closed.Store(true)
	conns := slices.Collect(maps.Keys(r.mu.conns))
	if r.mu.spare != nil {
		_ = r.mu.spare.Close()
		r.mu.spare = nil
	}
	r.mu.Unlock()
	for _, c := range conns { // over TLS that writes
		_ = c.Close()
	}
}

// takeSpare returns the connection that keep has just kept, nil if there is none.
func (r *racer) takeSpare() net.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.mu.spare
	r.mu.spare = nil
	if c != nil && time.Since(r.mu.kept) > r.budget {
		_ = c.Close()
		return nil
	}
	return c
}

// dial returns a connection, over which TLS has begun where that is wanted.
func (r *racer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if r.user != nil && r.lookup == nil {
		return r.user(ctx, network, addr)
	}
	c, err := r.race(ctx, network, r.addresses(ctx, network, addr))
	if err != nil || r.tls == nil {
		return c, err
	}
	config := r.tls
	if config.ServerName == "" {
		config = config.Clone()
		if config.ServerName, _, err = net.SplitHostPort(addr); err != nil {
			config.ServerName = addr
		}
	}
	secure := tls.Client(c, config)
	if err = secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Addr: c.RemoteAddr(), Err: err}
	}
	return secure, nil
}

// addresses returns those of the host of addr, first the one that answered last. What can't
// be looked up is left to the dial, which has the error.
func (r *racer) addresses(ctx context.Context, network, addr string) []string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || network == "unix" || net.ParseIP(host) != nil {
		return []string{addr}
	}
	lookup := r.lookup
	if lookup == nil {
		lookup = net.DefaultResolver.LookupIPAddr
	}
	ips, err := lookup(ctx, host)
	if err != nil || len(ips) == 0 {
		return []string{addr}
	}
	r.mu.Lock()
	best := r.mu.best
	r.mu.Unlock()
	all := make([]string, 0, len(ips))
	for _, ip := range ips {
		a := net.JoinHostPort(ip.String(), port)
		if all = append(all, a); a == best {
			all[0], all[len(all)-1] = a, all[0]
		}
	}
	return all
}

// attempt is how the dial of one address ended.
type attempt struct {
	conn net.Conn
	addr string
	err  error
	took time.Duration
}

// race returns the first connection, or the last error when all addresses have refused.
func (r *racer) race(ctx context.Context, network string, addrs []string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended, dial := make(chan attempt), r.user
	if dial == nil {
		dial = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
	}
	next, tried := time.NewTimer(0), time.Time{}
	defer next.Stop()
	for begun, under, failure := 0, 0, error(nil); ; {
		select {
		//mutant:dials-hurried
		case <-r.opens():
			next.Reset(stagger - time.Since(tried)) // the link is back
		case <-next.C:
			go try(ctx, dial, network, addrs[begun%len(addrs)], ended)
			tried = time.Now()
			under++
			begun++
			next.Reset(rest(begun, len(addrs)))
		case a := <-ended:
			if under--; a.err == nil {
				r.opened(a.addr)
				return a.conn, nil
			}
			if failure = a.err; begun < len(addrs) {
				next.Reset(0)
			} else if under == 0 {
				return nil, failure
			}
		case <-ctx.Done():
			if failure == nil {
				failure = &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
			}
			return nil, failure
		}
	}
}

// rest returns when the next of so many addresses is tried, after so many tries.
func rest(tries, addrs int) time.Duration {
	if tries%addrs == 0 {
		//mutant:hurried-dials-few
		return stagger << min(1+tries/addrs, doublings)
	}
	//mutant:addresses-raced
	return stagger
}

// opens returns a channel that is closed when the next connection opens.
func (r *racer) opens() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.open
}

func (r *racer) opened(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.best = addr
	close(r.mu.open)
	r.mu.open = make(chan struct{})
}

// try dials one address. A connection that comes after another one is closed.
func try(ctx context.Context, dial dialer, network, addr string, ended chan<- attempt) {
	c, err := dial(ctx, network, addr)
	select {
	case ended <- attempt{conn: c, addr: addr, err: err}:
	case <-ctx.Done():
		if c != nil {
			_ = c.Close()
		}
	}
}
