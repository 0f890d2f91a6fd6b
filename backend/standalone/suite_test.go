package standalone_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/backend/storetest"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// refuser is a client whose next command finds no server.
type refuser struct {
	client *redis.Client
	next   atomic.Bool
}

func (r *refuser) Process(ctx context.Context, cmd redis.Cmder) error {
	if r.next.CompareAndSwap(true, false) {
		return &net.OpError{Op: "dial", Err: errors.New("refused")}
	}
	return r.client.Process(ctx, cmd)
}

// subject is the store on a real server behind a proxy that can break it.
func subject(t *testing.T, server *redistest.Server, o *standalone.Options) storetest.Subject {
	admin, ctx := server.Client(t), context.Background()
	require.NoError(t, admin.FlushDB(ctx).Err())
	proxy := redistest.NewProxy(t, server.Addr())
	client := &refuser{client: server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })}
	var now atomic.Int64
	virtual := func() time.Time { return time.UnixMicro(now.Load()) }
	return storetest.Subject{
		Store:     standalone.New(clock.Client{Processor: client, Now: virtual}, o),
		SetNow:    now.Store,
		Expiries:  func() map[string]time.Duration { return expiries(admin) },
		Corrupt:   func(key string, ps []backend.Policy) { corrupt(admin, key, ps) },
		LoseReply: func() { proxy.Set(redistest.ResetAfterRequest.Times(1)) },
		Refuse:    func() { client.next.Store(true) },
	}
}

func expiries(c *redis.Client) map[string]time.Duration {
	m, ctx := map[string]time.Duration{}, context.Background()
	for _, k := range c.Keys(ctx, "*").Val() {
		m[k] = c.PTTL(ctx, k).Val()
		for _, f := range c.HKeys(ctx, k).Val() { // none of a log
			m[k+" "+f] = m[k]
		}
	}
	return m
}

// corrupt writes what is no state into every policy's place.
func corrupt(c *redis.Client, key string, ps []backend.Policy) {
	ctx, tag := context.Background(), names.Tag(key, "")
	hash := names.DefaultPrefix.Hash(tag)
	for i := range ps {
		if ps[i].Algorithm.Kind().Storage() == rule.StoredApart {
			c.Set(ctx, names.DefaultPrefix.Log(tag, &ps[i]), "garbage", time.Hour)
		}
	}
	for _, f := range c.HKeys(ctx, hash).Val() {
		c.HSet(ctx, hash, f, "garbage")
	}
}

// TestSuite runs under the race detector, which finds a request of any operation that is kept.
// Calls that are sent alone are packed and answered by the same code, so they have only the
// cases for the detector there.
func TestSuite(t *testing.T) {
	server := redistest.Start(t)
	harness := func(o *standalone.Options) storetest.Harness {
		return storetest.Harness{New: func(t *testing.T) storetest.Subject { return subject(t, server, o) }}
	}
	t.Run("Together", func(t *testing.T) { storetest.Brief(t, harness(patient)) })
	t.Run("Alone", func(t *testing.T) { storetest.Raced(t, harness(patientAlone)) })
}

func TestSuiteWhole(t *testing.T) {
	redistest.Plain(t)
	server := redistest.Start(t)
	storetest.Run(t, storetest.Harness{New: func(t *testing.T) storetest.Subject { return subject(t, server, patient) }})
}

func TestSuiteAlone(t *testing.T) {
	redistest.Plain(t)
	server := redistest.Start(t)
	storetest.Brief(t, storetest.Harness{New: func(t *testing.T) storetest.Subject { return subject(t, server, patientAlone) }})
}

// TestSuiteThroughBreaker: the breaker over the store answers as the store where nothing
// fails. It passes a failure on where a layer above may try elsewhere.
func TestSuiteThroughBreaker(t *testing.T) {
	redistest.Plain(t)
	server := redistest.Start(t)
	storetest.Brief(t, storetest.Harness{New: func(t *testing.T) storetest.Subject {
		s := subject(t, server, patient)
		s.Store = faulttest.Attempts{Fallback: breaker.New(s.Store, nil)}
		return s
	}})
}

func TestSuiteOnTheRealClock(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client(t)
	storetest.Brief(t, storetest.Harness{New: func(t *testing.T) storetest.Subject {
		require.NoError(t, admin.FlushDB(context.Background()).Err())
		return storetest.Subject{Store: standalone.New(admin, patient)}
	}})
	server.NoImmortals(t)
}
