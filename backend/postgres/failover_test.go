package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// pair is a primary and its standby. The standby receives the log through a proxy. The
// store has both in its URL, and LOGGED tables.
type pair struct {
	t                *testing.T
	primary, standby *postgrestest.Server
	link             *postgrestest.Proxy
	admin            *pgxpool.Pool // of the primary
	store            *postgres.Store
	taken            []tally // of each key
}

// tally counts the calls of a key.
type tally struct{ counted, perhaps atomic.Int64 }

const pairBudget = time.Second

func newPair(t *testing.T, settings ...string) *pair {
	p := &pair{t: t, primary: postgrestest.Start(t, settings...), taken: make([]tally, 50)}
	p.link = postgrestest.NewProxy(t, p.primary.Addr())
	p.standby = p.primary.Standby(t, p.link.Addr())
	p.admin = pool(t, p.primary.Addr(), "")
	both := pool(t, p.primary.Addr()+","+p.standby.Addr(), "target_session_attrs=read-write")
	p.store = postgres.New(both, &postgres.Options{Schema: schema(), Logged: true, Budget: pairBudget})
	require.NoError(t, p.store.Migrate(context.Background()))
	return p
}

func (p *pair) key(i int) string { return fmt.Sprint("key ", i) }

// take takes a unit of a random key.
func (p *pair) take() error {
	i := rand.IntN(len(p.taken))
	_, err := ask(p.store, backend.Take, p.key(i), daily(1<<30))
	switch {
	case err == nil:
		p.taken[i].counted.Add(1)
	case errors.Is(err, backend.ErrPerhapsCounted):
		p.taken[i].perhaps.Add(1)
	}
	return err
}

// load takes by several callers until it is stopped.
func (p *pair) load() (counted func() int64, stop func()) {
	var done atomic.Bool
	var all sync.WaitGroup
	for range 16 {
		all.Add(1)
		go func() {
			defer all.Done()
			for !done.Load() {
				if p.take() != nil {
					time.Sleep(time.Millisecond)
				}
			}
		}()
	}
	return func() int64 { return p.sum(func(k *tally) int64 { return k.counted.Load() }) }, func() { done.Store(true); all.Wait() }
}

func (p *pair) sum(of func(*tally) int64) (n int64) {
	for i := range p.taken {
		n += of(&p.taken[i])
	}
	return n
}

// fail kills the primary, promotes the standby, and returns when the store decides again.
func (p *pair) fail() time.Duration {
	p.primary.Kill()
	began := time.Now()
	p.link.CloseAll()
	p.standby.Promote(p.t)
	require.Eventually(p.t, func() bool { return p.take() == nil }, 10*time.Second, time.Millisecond)
	return time.Since(began)
}

// lost returns how many calls were counted by their answers and are not by the standby. No key
// has more than its calls.
func (p *pair) lost() (n int64) {
	for i := range p.taken {
		has, k := used(p.t, p.store, p.key(i), daily(1<<30)), &p.taken[i]
		require.LessOrEqual(p.t, has, k.counted.Load()+k.perhaps.Load())
		n += max(0, k.counted.Load()-has)
	}
	return n
}

// stall keeps back all that is replicated, until it is released: then that is lost.
func (p *pair) stall() (release func()) {
	wait := make(chan struct{})
	p.link.Set(func(m postgrestest.Message) postgrestest.Fate {
		if !m.FromServer {
			return postgrestest.Pass
		}
		<-wait
		return postgrestest.Cut
	})
	return sync.OnceFunc(func() { close(wait) })
}

// TestFailover: counts of LOGGED tables after the primary was killed under load and its standby
// promoted. Synchronous replication loses no call whose answer came.
func TestFailover(t *testing.T) {
	for _, names := range []string{"*", ""} {
		t.Run("synchronous to "+names, func(t *testing.T) {
			p := newPair(t, "synchronous_standby_names="+names)
			counted, stop := p.load()
			enough := int64(redistest.Steps(2_000, 100_000))
			require.Eventually(t, func() bool { return counted() > enough }, time.Minute, time.Millisecond)
			again := p.fail()
			stop()
			all, lost := counted(), p.lost()
			t.Logf("%d counted, %d perhaps counted, %d lost; decided again after %v, with the promotion", all, p.sum(func(k *tally) int64 { return k.perhaps.Load() }), lost, again)
			if names != "" {
				require.Zero(t, lost)
			}
		})
	}
}

// TestFailoverThatLags: asynchronous replication loses exactly the calls that the standby lacked.
func TestFailoverThatLags(t *testing.T) {
	p := newPair(t)
	take := func(n int) {
		for range n {
			require.NoError(t, p.take())
		}
	}
	take(200)
	replicated := func() (all bool) {
		err := p.admin.QueryRow(context.Background(), "select coalesce(bool_and(replay_lsn = pg_current_wal_lsn()), false) from pg_stat_replication").Scan(&all)
		require.NoError(t, err)
		return all
	}
	require.Eventually(t, replicated, 10*time.Second, time.Millisecond)
	release := p.stall()
	defer release()
	take(100)
	time.AfterFunc(100*time.Millisecond, release)
	p.fail()
	require.EqualValues(t, 100, p.lost())
}

// TestStandbyThatStalls: while a synchronous standby acknowledges nothing, a call is perhaps counted
// after its budget. None of those that were answered before is lost with the primary.
func TestStandbyThatStalls(t *testing.T) {
	p := newPair(t, "synchronous_standby_names=*")
	for range 100 {
		require.NoError(t, p.take())
	}
	release := p.stall()
	defer release()
	for range 3 {
		began := time.Now()
		require.ErrorIs(t, p.take(), backend.ErrPerhapsCounted)
		require.Less(t, time.Since(began), 2*pairBudget)
	}
	time.AfterFunc(100*time.Millisecond, release)
	p.fail()
	require.Zero(t, p.lost())
}
