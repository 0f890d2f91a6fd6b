package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/stretchr/testify/require"
)

var figures = flag.Bool("figures", false, "measure decisions/s beside the usual counter")

// TestFigures measures decisions per second and the client's processor time beside the usual
// counter in a row: INSERT … ON CONFLICT DO UPDATE … RETURNING, prepared, on 16 connections, in
// an unlogged table. Rounds alternate, and the medians of three are printed.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("-figures measures")
	}
	server := postgrestest.Start(t)
	ours, counter := pool(t, server.Addr(), "pool_max_conns=16"), pool(t, server.Addr(), "pool_max_conns=16")
	s := postgres.New(ours, &postgres.Options{Budget: 5 * time.Second})
	require.NoError(t, s.Migrate(context.Background()))
	_, err := counter.Exec(context.Background(), "create unlogged table usual (key text primary key, starts timestamptz not null, n bigint not null) with (fillfactor = 50)")
	require.NoError(t, err)
	list := []backend.Policy{{Name: "api", Algorithm: algo.FixedWindow(algo.PerMinute(1 << 30)), OnFailure: backend.FailClosed}}
	headgate := func(key string) error {
		_, err := ask(s, backend.Take, key, list)
		return err
	}
	usual := func(key string) error {
		var n int64
		return counter.QueryRow(context.Background(), usualSQL, key).Scan(&n)
	}
	for _, callers := range []int{512, 32} {
		for _, keys := range []int{1, 10_000} {
			var rates, cpus [2][]float64
			for range 3 {
				for i, call := range []func(string) error{headgate, usual} {
					rate, cpu := measure(t, callers, keys, call)
					rates[i], cpus[i] = append(rates[i], rate), append(cpus[i], cpu)
				}
			}
			a, b := median(rates[0]), median(rates[1])
			t.Logf("%d callers, %d keys: %.0f/s, %.1f µs of the client's processor; counter %.0f/s, %.1f µs; %.1f ×", callers, keys, a, median(cpus[0]), b, median(cpus[1]), a/b)
		}
	}
}

const usualSQL = `insert into usual as u values ($1, now(), 1) on conflict (key) do update set
	n = case when u.starts < now() - interval '1 minute' then 1 else u.n + 1 end,
	starts = case when u.starts < now() - interval '1 minute' then now() else u.starts end returning n`

func median(all []float64) float64 {
	return all[0] + all[1] + all[2] - max(all[0], all[1], all[2]) - min(all[0], all[1], all[2])
}

// measure returns calls per second, and the µs of this process's processor time per call.
func measure(t *testing.T, callers, keys int, call func(string) error) (perSecond, cpu float64) {
	const lasts = 2 * time.Second
	var done atomic.Int64
	var all sync.WaitGroup
	before, began := processor(), time.Now()
	for range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Since(began) < lasts {
				if err := call(fmt.Sprint("user:", rand.IntN(keys))); err != nil {
					t.Error(err)
					return
				}
				done.Add(1)
			}
		}()
	}
	all.Wait()
	n := float64(done.Load())
	return n / time.Since(began).Seconds(), float64(processor()-before) / float64(time.Microsecond) / n
}

// processor returns the processor time that this process has used.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
