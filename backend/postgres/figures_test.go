package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

var figures = flag.Bool("figures", false, "measure decisions/s beside the usual counter and Redis")

// subject is what TestFigures measures.
type subject struct {
	name   string
	call   func(key string) error
	server func() time.Duration // the processor time that its server has used
}

// figure is what a subject did in one round: calls per second, and µs of processor time per call.
type figure struct{ rate, client, server float64 }

// TestFigures measures decisions per second, and the processor time of the client and the server,
// beside the usual counter in a row: INSERT … ON CONFLICT DO UPDATE … RETURNING, prepared, on 16
// connections, in an unlogged table; and beside Redis. Rounds alternate, and the medians of three
// are printed. The last rows are of servers behind a link of 1 ms.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("-figures measures")
	}
	pg, rd := postgrestest.Start(t), redistest.Start(t)
	near := threeOf(t, pg, pg.Addr(), rd, rd.Addr())
	for _, callers := range []int{512, 32} {
		for _, keys := range []int{1, 10_000} {
			row(t, near, "near", callers, keys)
		}
	}
	slow := func(addr string) string { return redistest.NewRelay(t, addr, time.Millisecond).Addr() }
	far := threeOf(t, pg, slow(pg.Addr()), rd, slow(rd.Addr()))
	for _, callers := range []int{512, 32, 1} {
		row(t, far, "1ms", callers, 1)
	}
}

// threeOf returns the store on PostgreSQL, the usual counter, and the store on Redis.
func threeOf(t *testing.T, pg *postgrestest.Server, pgAddr string, rd *redistest.Server, rdAddr string) []subject {
	ctx, counter := context.Background(), pool(t, pgAddr, "pool_max_conns=16")
	s := postgres.New(pool(t, pgAddr, "pool_max_conns=16"), &postgres.Options{Budget: 5 * time.Second})
	require.NoError(t, s.Migrate(ctx))
	_, err := counter.Exec(ctx, "create unlogged table if not exists usual (key text primary key, starts timestamptz not null, n bigint not null) with (fillfactor = 50)")
	require.NoError(t, err)
	onRedis, err := standalone.Open("redis://"+rdAddr, &standalone.Options{Budget: 5 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = onRedis.Close() })
	direct := rd.Client(t)
	list := []backend.Policy{{Name: "api", Algorithm: algo.FixedWindow(algo.PerMinute(1 << 30)), OnFailure: backend.FailClosed}}
	by := func(s backend.Store) func(string) error {
		return func(key string) error {
			_, err := ask(s, backend.Take, key, list)
			return err
		}
	}
	usual := func(key string) error {
		var n int64
		return counter.QueryRow(ctx, usualSQL, key).Scan(&n)
	}
	redisUsed := func() (used time.Duration) {
		info := direct.InfoMap(ctx, "cpu")
		for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
			n, err := strconv.ParseFloat(info.Item("CPU", name), 64)
			require.NoError(t, err)
			used += time.Duration(n * float64(time.Second))
		}
		return used
	}
	return []subject{{"PostgreSQL", by(s), pg.Processor}, {"counter", usual, pg.Processor}, {"Redis", by(onRedis), redisUsed}}
}

// row measures the subjects in turn, and prints the median of each.
func row(t *testing.T, subjects []subject, link string, callers, keys int) {
	t.Run(fmt.Sprintf("%s/%d callers of %d", link, callers, keys), func(t *testing.T) { medians(t, subjects, callers, keys) })
}

func medians(t *testing.T, subjects []subject, callers, keys int) {
	rounds := make([][]figure, len(subjects))
	for range 3 {
		for i, s := range subjects {
			rounds[i] = append(rounds[i], measure(t, callers, keys, s))
		}
	}
	var ours float64
	for i, s := range subjects {
		rate := median(rounds[i], func(f figure) float64 { return f.rate })
		if i == 0 {
			ours = rate
		}
		t.Logf("%-10s %8.0f/s, client %5.1f µs, server %5.1f µs per call; PostgreSQL does %.2f × as many", s.name, rate,
			median(rounds[i], func(f figure) float64 { return f.client }), median(rounds[i], func(f figure) float64 { return f.server }), ours/rate)
	}
}

const usualSQL = `insert into usual as u values ($1, now(), 1) on conflict (key) do update set
	n = case when u.starts < now() - interval '1 minute' then 1 else u.n + 1 end,
	starts = case when u.starts < now() - interval '1 minute' then now() else u.starts end returning n`

func median(all []figure, of func(figure) float64) float64 {
	var values []float64
	for _, f := range all {
		values = append(values, of(f))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// measure measures one round of a subject.
func measure(t *testing.T, callers, keys int, s subject) figure {
	const lasts = 2 * time.Second
	var done atomic.Int64
	var all sync.WaitGroup
	client, server, began := processor(), s.server(), time.Now()
	for range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Since(began) < lasts {
				if err := s.call(fmt.Sprint("user:", rand.IntN(keys))); err != nil {
					t.Error(err)
					return
				}
				done.Add(1)
			}
		}()
	}
	all.Wait()
	took, n := time.Since(began).Seconds(), float64(done.Load())
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) / n }
	return figure{n / took, micros(processor() - client), micros(s.server() - server)}
}

// processor returns the processor time that this process has used.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
