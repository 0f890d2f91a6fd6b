package standalone

import (
	"context"
	"errors"
	"fmt"
	"net"
	neturl "net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/redis/go-redis/v9"
)

// Open returns a store on the server of a URL such as
// "redis://user:password@host:6379/0", or "rediss://…" for TLS. Its client sends
// nothing twice and waits no longer than the budget. Open does no I/O. Close closes the client.
func Open(url string, opts *Options) (*Store, error) {
	o, err := redis.ParseURL(url)
	// An error may quote the URL, or a password with a slash as the number of a database.
	//mutant:password-hidden
	if err != nil && (errors.As(err, new(*neturl.Error)) || strings.Contains(url, "@") || strings.Contains(err.Error(), "database")) {
		return nil, errors.New("headgate: redis url: not a URL: want redis://host:port, or redis://user:password@host:port with %25 for a % in the password")
	} else if err != nil {
		return nil, fmt.Errorf("headgate: redis url: %w: want redis://host:port", err)
	}
	s := open(o, opts, nil, nil)
	if s.err != nil {
		return nil, s.err
	}
	return s, nil
}

// simulated is a client of the simulator. The store that New returns is the one that
// Open would, of these options in place of a URL, with a hook in its client.
type simulated interface {
	Simulated() (*redis.Options, redis.Hook)
	// Lookup returns the addresses of a host, which the options' Dialer dials.
	Lookup(ctx context.Context, host string) ([]net.IPAddr, error)
}

// open is Open of the client's options. A hook and a lookup are the simulator's.
func open(o *redis.Options, opts *Options, hook redis.Hook, lookup client.Lookup) *Store {
	budget := DefaultBudget
	if opts != nil && opts.Budget > 0 {
		budget = opts.Budget
	}
	o = client.Named(o, budget, lookup)
	client := &lazy{addr: o.Addr, trips: client.TripsOf(o), client: sync.OnceValue(func() *redis.Client {
		c := redis.NewClient(o)
		if hook != nil {
			c.AddHook(hook)
		}
		return c
	})}
	s := New(client, opts)
	s.owned = client
	return s
}

// lazy is a client that is made when it is first needed. A go-redis client that
// keeps idle connections dials as soon as it is made, and Open does no I/O.
type lazy struct {
	addr   string
	trips  *client.Trips
	client func() *redis.Client
	used   atomic.Bool
	closed atomic.Bool
}

// get returns the client. It sets used before it reads closed, and Close sets
// closed before it reads used. One of them sees the other, so no client stays
// open.
func (l *lazy) get() *redis.Client {
	//mutant:made-client-closed
	l.used.Store(true)
	c := l.client()
	if l.closed.Load() {
		_ = client.Close(c)
	}
	return c
}

// Trips returns the round trips that the client's connections measure.
func (l *lazy) Trips() *client.Trips { return l.trips }

func (l *lazy) PoolStats() *redis.PoolStats { return l.get().PoolStats() }

func (l *lazy) Options() *redis.Options { return l.get().Options() }

func (l *lazy) Process(ctx context.Context, cmd redis.Cmder) error { return l.get().Process(ctx, cmd) }

// Close closes the client, if there ever was one.
func (l *lazy) Close() error {
	l.closed.Store(true)
	if !l.used.Load() {
		return nil
	}
	if err := client.Close(l.client()); !errors.Is(err, redis.ErrClosed) { // get may have been first
		return err
	}
	return nil
}
