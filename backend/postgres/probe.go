package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// probes is whether a probe is under way, and when a call was refused last.
type probes struct {
	under   atomic.Bool
	refused atomic.Int64 // as UnixNano
}

// While the circuit is open, one probe waits at the server: the first answer lets the next
// call be the trial. A connection of its own is made for each, since those of the pool may be dead.
const (
	probeFirst = 10 * time.Millisecond // between two probes, then twice as long each time
	probeMost  = 100 * time.Millisecond
	probeLasts = time.Second // a probe that is not answered, and all of them without a call
)

// probe begins to probe the server for a call that was refused, if the circuit waits for that and
// nobody does so. Without further calls it ends, and the next call is the trial.
func (s *Store) probe() {
	s.probes.refused.Store(time.Now().UnixNano())
	//mutant:postgres-one-probe
	if !s.shared.Awaits(s.opts.Name) || !s.probes.under.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.probes.under.Store(false)
		for pause := probeFirst; s.awaited(); pause = min(2*pause, probeMost) {
			if s.serves() {
				break
			}
			time.Sleep(pause)
		}
		//mutant:postgres-probe-answered
		s.shared.Answered(s.opts.Name)
	}()
}

// awaited reports whether the circuit waits for an answer, and calls still come.
func (s *Store) awaited() bool {
	quiet := time.Since(time.Unix(0, s.probes.refused.Load()))
	//mutant:postgres-probes-end
	return s.shared.Awaits(s.opts.Name) && !s.shared.Closed.Load() && quiet < probeLasts
}

// serves reports whether the server lets a client in and answers.
func (s *Store) serves() bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeLasts)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		state, _ := stateOf(err)
		//mutant:postgres-serves
		return state != "" && state[:2] != "57" && state[:2] != "53" // it answers, and the trial shows what is wrong
	}
	defer conn.Close(ctx)
	return conn.Ping(ctx) == nil
}
