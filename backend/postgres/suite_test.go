package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/record"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/backend/storetest"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// subjects makes the subjects of the suite: stores behind a proxy that can break them, all on
// the same tables, which are emptied for each.
func subjects(t *testing.T) func(t *testing.T) storetest.Subject {
	o := &postgres.Options{Schema: schema(), Budget: 10 * time.Second}
	server := postgrestest.Shared(t)
	admin, proxy := pool(t, server.Addr(), ""), postgrestest.NewProxy(t, server.Addr())
	through := pool(t, proxy.Addr(), "")
	require.NoError(t, postgres.New(admin, o).Migrate(context.Background()))
	return func(t *testing.T) storetest.Subject {
		ctx := context.Background()
		_, err := admin.Exec(ctx, fmt.Sprintf("truncate %[1]s.counts, %[1]s.leases", o.Schema))
		require.NoError(t, err)
		proxy.Set(nil)
		var now atomic.Int64
		s := postgres.New(through, o)
		s.SetClock(now.Load)
		return storetest.Subject{
			Store: refusing{s, proxy}, SetNow: now.Store,
			Expiries: func() map[string]time.Duration { return expiries(t, admin, o.Schema, now.Load()) },
			Corrupt: func(key string, _ []backend.Policy) {
				_, err := admin.Exec(ctx, "update "+o.Schema+".counts set data = 'garbage' where key = $1", []byte(postgres.RowID(key)))
				require.NoError(t, err)
			},
			LoseReply: func() {
				proxy.Set(func(m postgrestest.Message) postgrestest.Fate {
					if m.Commits() {
						return postgrestest.Cut
					}
					return postgrestest.Pass
				})
			},
			Refuse: func() {
				proxy.Refuse(1 << 20)
				proxy.CloseAll()
			},
		}
	}
}

// refusing ends a refusal with the request that met it.
type refusing struct {
	*postgres.Store
	proxy *postgrestest.Proxy
}

func (r refusing) Do(ctx context.Context, q *backend.Request, d *backend.Decision) error {
	defer r.proxy.Refuse(0)
	return r.Store.Do(ctx, q, d)
}

// expiries returns all counts, leases and borrowers, with the time until they expire. What a
// count holds no longer may be left out.
func expiries(t *testing.T, p *pgxpool.Pool, schema string, now int64) map[string]time.Duration {
	m, ctx := map[string]time.Duration{}, context.Background()
	rows, err := p.Query(ctx, fmt.Sprintf("select key, ''::bytea, expires, data from %[1]s.counts union all select key, id, expires, data from %[1]s.leases", schema))
	require.NoError(t, err)
	note := func(name string, at int64) {
		if at > now {
			m[name] = time.Duration(at-now) * time.Microsecond
		}
	}
	for rows.Next() {
		var key, id, data []byte
		var at int64
		require.NoError(t, rows.Scan(&key, &id, &at, &data))
		if len(id) > 0 {
			note(fmt.Sprintf("%s %x", key, id), at)
			continue
		}
		r, err := record.Open(data)
		require.NoError(t, err)
		for c := (record.Count{}); r.More(); {
			if r.Count(&c); c.ID != 0 {
				require.LessOrEqual(t, c.Until, at, "the row of a count is needed as long")
				note(fmt.Sprintf("%s %x", key, c.ID), c.Until)
			}
		}
		require.NoError(t, r.Err())
	}
	require.NoError(t, rows.Err())
	return m
}

// TestSuite is whole without the race detector, which finds a request that is kept.
func TestSuite(t *testing.T) {
	if harness := (storetest.Harness{New: subjects(t)}); redistest.Raced {
		storetest.Raced(t, harness)
	} else {
		storetest.Run(t, harness)
	}
}
