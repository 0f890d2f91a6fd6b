package postgres_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	code := m.Run()
	postgrestest.RemoveShared()
	os.Exit(code)
}

var schemas atomic.Int64

// schema returns the name of a schema of the test's own.
func schema() string { return fmt.Sprintf("test%d", schemas.Add(1)) }

// pool returns a pool of connections to an address, which is closed when the test ends.
func pool(t testing.TB, addr, settings string) *pgxpool.Pool {
	p, err := pgxpool.New(context.Background(), postgrestest.URL(addr, settings))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// open returns a store on the shared server, in a schema of its own.
func open(t testing.TB, o postgres.Options) *postgres.Store {
	if o.Schema == "" {
		o.Schema = schema()
	}
	if o.Budget == 0 {
		o.Budget = 10 * time.Second
	}
	s := postgres.New(pool(t, postgrestest.Shared(t).Addr(), ""), &o)
	require.NoError(t, s.Migrate(context.Background()))
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// daily is a policy of n units a day.
func daily(n int64) []backend.Policy {
	return []backend.Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(n)), OnFailure: backend.FailClosed}}
}

// ask sends a request of one key.
func ask(s backend.Store, op backend.Op, key string, ps []backend.Policy) (backend.Decision, error) {
	return layer.Ask(context.Background(), s, backend.Request{Op: op, Group: backend.Group{Key: key, Policies: ps, Cost: 1}})
}

// used returns how much of a key is used.
func used(t testing.TB, s backend.Store, key string, ps []backend.Policy) int64 {
	d, err := ask(s, backend.Peek, key, ps)
	require.NoError(t, err)
	return d.Used
}
