package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/stretchr/testify/require"
)

// TestAtMostOnce cuts the connection at each message of a decision, before it arrives or
// after. Until commit is sent the decision is made on another connection. Then an error
// says that the call is perhaps counted, and it is counted once at most.
func TestAtMostOnce(t *testing.T) {
	server := postgrestest.Shared(t)
	proxy := postgrestest.NewProxy(t, server.Addr())
	o := &postgres.Options{Schema: schema(), Budget: 5 * time.Second}
	through, direct := postgres.New(pool(t, proxy.Addr(), "pool_max_conns=2"), o), postgres.New(pool(t, server.Addr(), ""), o)
	require.NoError(t, direct.Migrate(context.Background()))
	ps := daily(1_000)
	results := map[string]int{}
	for n, cut := 1, true; cut; n++ {
		for _, fate := range []postgrestest.Fate{postgrestest.Cut, postgrestest.CutAfter} {
			key := fmt.Sprint("cut ", n, fate)
			_, err := ask(through, backend.Take, key, ps) // the statements are prepared
			require.NoError(t, err)
			messages := 0
			cut = false
			proxy.Set(func(postgrestest.Message) postgrestest.Fate {
				if messages++; messages == n {
					cut = true
					return fate
				}
				return postgrestest.Pass
			})
			_, err = ask(through, backend.Take, key, ps)
			proxy.Set(nil)
			got := used(t, direct, key, ps)
			switch {
			case err == nil:
				results["decided"]++
				require.EqualValues(t, 2, got, "message %d", n)
			case errors.Is(err, backend.ErrPerhapsCounted):
				results["perhaps counted"]++
				require.Contains(t, []int64{1, 2}, got, "message %d", n)
			default: // of a connection that began
				results["not counted"]++
				require.ErrorIs(t, err, backend.ErrUnavailable, "message %d", n)
				require.EqualValues(t, 1, got, "message %d", n)
			}
		}
	}
	t.Log(results)
	require.Greater(t, results["decided"], 4*results["not counted"]+20)
	require.Greater(t, results["perhaps counted"], 5)
}

// TestDenialsAndLooksAreNotInDoubt: where the answer to a commit is lost, a call that was denied
// in the same transaction is certainly not counted, and neither is a Peek.
func TestDenialsAndLooksAreNotInDoubt(t *testing.T) {
	server := postgrestest.Shared(t)
	proxy := postgrestest.NewProxy(t, server.Addr())
	o := &postgres.Options{Schema: schema(), Budget: 5 * time.Second}
	s := postgres.New(pool(t, proxy.Addr(), ""), o)
	require.NoError(t, s.Migrate(context.Background()))
	proxy.Set(func(m postgrestest.Message) postgrestest.Fate {
		if m.Commits() {
			return postgrestest.Cut
		}
		return postgrestest.Pass
	})
	rs, answers := make([]backend.Request, 3), make([]backend.Answer, 3)
	for i, op := range []backend.Op{backend.Take, backend.Take, backend.Peek} {
		rs[i] = backend.Request{Op: op, Group: backend.Group{Key: "k", Policies: daily(1), Cost: 1}}
	}
	s.DoAll(context.Background(), rs, answers)
	require.ErrorIs(t, answers[0].Err, backend.ErrPerhapsCounted)
	for _, a := range answers[1:] {
		require.ErrorIs(t, a.Err, backend.ErrUnavailable)
		require.NotErrorIs(t, a.Err, backend.ErrPerhapsCounted)
		require.Zero(t, a.Decision)
	}
}

// TestServerEnds: what a crash, a shutdown and a stop of the server leave.
func TestServerEnds(t *testing.T) {
	server := postgrestest.Start(t)
	stores := map[bool]*postgres.Store{}
	for _, logged := range []bool{false, true} {
		stores[logged] = postgres.New(pool(t, server.Addr(), ""), &postgres.Options{Schema: schema(), Logged: logged, Budget: time.Second})
		require.NoError(t, stores[logged].Migrate(context.Background()))
	}
	ps := daily(100)
	take := func(n int64) {
		for logged, s := range stores {
			d, err := ask(s, backend.Take, "k", ps)
			require.NoError(t, err)
			if logged || n > 0 {
				require.Equal(t, max(n, 1), d.Used, "logged: %v", logged)
			}
		}
	}
	take(1)
	server.Shutdown()
	_, err := ask(stores[true], backend.Take, "k", ps)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	server.Restart(t)
	take(2)
	server.Stop()
	before := time.Now()
	_, err = ask(stores[true], backend.Take, "k", ps)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.Less(t, time.Since(before), 1500*time.Millisecond)
	server.Cont()
	take(3)
	server.Kill()
	server.Restart(t)
	d, err := ask(stores[true], backend.Take, "k", ps)
	require.NoError(t, err)
	require.EqualValues(t, 4, d.Used)
	d, err = ask(stores[false], backend.Take, "k", ps)
	require.NoError(t, err)
	require.EqualValues(t, 1, d.Used, "an unlogged table is empty after a crash")
}
