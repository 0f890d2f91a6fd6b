package linearize

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// still is a function of the server's that takes the place of its clock, which stands still, for
// sessions that look for functions there first.
const still = `create schema still; create function still.clock_timestamp() returns timestamptz language sql immutable
	return timestamptz 'epoch' + interval '1 microsecond' * %d`

// TestPostgresIsLinearizable is TestLinearizable of two stores on the same tables, as two processes
// have them. Of each ten commits the answer of one is lost.
func TestPostgresIsLinearizable(t *testing.T) {
	ctx, server := context.Background(), postgrestest.Start(t)
	proxy := postgrestest.NewProxy(t, server.Addr())
	open := func(settings string) *pgxpool.Pool {
		p, err := pgxpool.New(ctx, postgrestest.URL(proxy.Addr(), settings))
		require.NoError(t, err)
		t.Cleanup(p.Close)
		return p
	}
	_, err := open("").Exec(ctx, fmt.Sprintf(still, start))
	require.NoError(t, err)
	store := func() *postgres.Store {
		return postgres.New(open("pool_max_conns=4&search_path=still,pg_catalog"), &postgres.Options{Budget: budget})
	}
	one, other := store(), store()
	require.NoError(t, one.Migrate(ctx))
	commits := 0
	proxy.Set(func(m postgrestest.Message) postgrestest.Fate {
		if m.Commits() {
			if commits++; commits%10 == 0 {
				return postgrestest.Cut
			}
		}
		return postgrestest.Pass
	})
	require.Positive(t, histories(t, &both{Store: one, other: other}, false))
}

// both sends every other request to another store.
type both struct {
	backend.Store
	other backend.Store
	turn  atomic.Int64
}

func (b *both) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if b.turn.Add(1)%2 == 0 {
		return b.other.Do(ctx, r, d)
	}
	return b.Store.Do(ctx, r, d)
}
