package standalone

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/redis/go-redis/v9"
)

// Open returns a store on the server of a URL such as
// "redis://user:password@host:6379/0", or "rediss://…" for TLS. Its client sends
// nothing twice, waits no longer than the budget, and keeps idle connections ready.
// Open does no I/O. Close closes the client.
func Open(url string, opts *Options) (*Store, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("headgate: redis url: %w", err)
	}
	budget := DefaultBudget
	if opts != nil && opts.Budget > 0 {
		budget = opts.Budget
	}
	client := &lazy{addr: o.Addr, poolSize: o.PoolSize, client: sync.OnceValue(func() *redis.Client { return redis.NewClient(batch.ClientOptions(o, budget)) })}
	s := New(client, opts)
	s.owned = client
	if s.err != nil {
		return nil, s.err
	}
	return s, nil
}

// lazy is a client that is made by its first command: a go-redis client that keeps
// idle connections dials as soon as it is made.
type lazy struct {
	addr     string
	poolSize int // 0: go-redis' default
	client   func() *redis.Client
	used     atomic.Bool
	closed   atomic.Bool
}

// PoolSize returns the size of the pool, also before the client is made.
func (l *lazy) PoolSize() int { return l.poolSize }

func (l *lazy) PoolStats() *redis.PoolStats { return l.client().PoolStats() }

func (l *lazy) Options() *redis.Options { return l.client().Options() }

func (l *lazy) Process(ctx context.Context, cmd redis.Cmder) error {
	l.used.Store(true)
	if l.closed.Load() {
		return redis.ErrClosed // and no client is made that nobody would close
	}
	return l.client().Process(ctx, cmd)
}

// Close closes the client, if there ever was one.
func (l *lazy) Close() error {
	l.closed.Store(true)
	if !l.used.Load() {
		return nil
	}
	return l.client().Close()
}
