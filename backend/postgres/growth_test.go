package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// sized returns lists of policies whose records take from some 50 bytes to 1 KB.
func sized() (lists [][]backend.Policy) {
	for _, n := range []int{1, 4, 12, 30} {
		var list []backend.Policy
		for i := range n {
			a := algo.SlidingWindow(algo.PerDay(int64(1<<30 + i)))
			if i%2 == 1 {
				a = algo.FixedWindow(algo.PerHour(int64(1<<30 + i)))
			}
			list = append(list, backend.Policy{Name: fmt.Sprint("p", i), Algorithm: a, OnFailure: backend.FailClosed})
		}
		lists = append(lists, list)
	}
	return lists
}

// size returns the bytes that the tables of a schema take, with their indexes.
func size(t testing.TB, p *pgxpool.Pool, schema string) (n int64) {
	sql := fmt.Sprintf("select pg_total_relation_size('%[1]s.counts') + pg_total_relation_size('%[1]s.leases')", schema)
	require.NoError(t, p.QueryRow(context.Background(), sql).Scan(&n))
	return n
}

// TestTablesDoNotGrow: after many decisions on 10,000 keys the tables take at most twice what
// they took after the first one of each key. The server's VACUUM is as it comes.
func TestTablesDoNotGrow(t *testing.T) {
	if redistest.Raced {
		t.Skip("make test runs it without the race detector")
	}
	const keys, callers = 10_000, 64
	server := postgrestest.Start(t)
	p := pool(t, server.Addr(), "pool_max_conns=16")
	s := postgres.New(p, &postgres.Options{Budget: 10 * time.Second})
	require.NoError(t, s.Migrate(context.Background()))
	lists := sized()
	run := func(n int, key func(i int) int) {
		var next atomic.Int64
		var all sync.WaitGroup
		for range callers {
			all.Add(1)
			go func() {
				defer all.Done()
				for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
					k := key(i)
					if _, err := ask(s, backend.Take, fmt.Sprint("user:", k), lists[k%len(lists)]); err != nil {
						t.Error(err)
						return
					}
				}
			}()
		}
		all.Wait()
	}
	run(keys, func(i int) int { return i })
	var longest, mean int
	require.NoError(t, p.QueryRow(context.Background(), "select max(length(data)), avg(length(data))::int from headgate.counts").Scan(&longest, &mean))
	first := size(t, p, "headgate")
	t.Logf("records of %d bytes, at most %d; %.1f MB after the first %d decisions", mean, longest, float64(first)/1e6, keys)
	require.InDelta(t, 1024, longest, 200)
	for decided, step := 0, redistest.Steps(100_000, 1_000_000); decided < redistest.Steps(100_000, 10_000_000); {
		began := time.Now()
		run(step, func(int) int { return rand.IntN(keys) })
		decided += step
		now := size(t, p, "headgate")
		t.Logf("%.1f MB, %.2f ×, after %d more (%.0f/s)", float64(now)/1e6, float64(now)/float64(first), decided, float64(step)/time.Since(began).Seconds())
		require.LessOrEqual(t, now, 2*first)
	}
}

// TestRecordsAreBounded: an algorithm whose record grows with its limit is refused above 10,000,
// and no other one is.
func TestRecordsAreBounded(t *testing.T) {
	s := postgres.New(pool(t, "127.0.0.1:1", ""), nil)
	check := func(a algo.Algorithm) error {
		return s.Check([]backend.Policy{{Name: "other", Algorithm: algo.FixedWindow(algo.PerDay(1))}, {Name: "p", Algorithm: a}})
	}
	for _, kind := range []func(int64) algo.Algorithm{
		func(n int64) algo.Algorithm { return algo.SlidingLog(algo.PerDay(n)) },
		func(n int64) algo.Algorithm { return algo.CompactLog(algo.PerDay(n)) }, algo.InFlight,
	} {
		require.NoError(t, check(kind(10_000)))
		err := check(kind(10_001))
		require.ErrorIs(t, err, backend.ErrUnsupported)
		require.ErrorContains(t, err, `policy "p"`)
	}
	for _, a := range []algo.Algorithm{
		algo.BucketedWindow(algo.PerDay(1<<30), algo.MaxBuckets), algo.SlidingWindow(algo.PerDay(1 << 30)), algo.Calendar(1<<30, algo.Day(), time.UTC),
	} {
		require.NoError(t, check(a))
	}
}

// TestLargeRecords measures what a decision costs by a SlidingLog of many entries, and how much
// the tables take then. Each decision has an instant of its own, or they would share an entry.
func TestLargeRecords(t *testing.T) {
	if !*figures {
		t.Skip("-figures measures")
	}
	const measured = 200 // decisions
	server := postgrestest.Start(t)
	p := pool(t, server.Addr(), "")
	s := postgres.New(p, &postgres.Options{Budget: 10 * time.Second})
	require.NoError(t, s.Migrate(context.Background()))
	list := []backend.Policy{{Name: "p", Algorithm: algo.SlidingLog(algo.PerDay(10_000)), OnFailure: backend.FailClosed}}
	for done, entries := 0, 100; entries <= 10_000; entries *= 10 {
		take := func(n int) {
			for ; done < n; done++ {
				_, err := ask(s, backend.Take, "k", list)
				require.NoError(t, err)
			}
		}
		take(max(entries-measured, entries/2))
		first := done
		client, ofServer, began := processor(), server.Processor(), time.Now()
		take(entries)
		per := func(d time.Duration) time.Duration { return d / time.Duration(done-first) }
		var bytes int64
		require.NoError(t, p.QueryRow(context.Background(), "select sum(length(data)) from headgate.counts").Scan(&bytes))
		t.Logf("%d entries: %d bytes; %v per decision, %v of the client's processor, %v of the server's; tables of %.1f MB", entries, bytes,
			per(time.Since(began)), per(processor()-client), per(server.Processor()-ofServer), float64(size(t, p, "headgate"))/1e6)
	}
}
