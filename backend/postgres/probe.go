package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// probes is whether a probe is under way.
type probes struct{ under atomic.Bool }

// While the circuit is open, one probe waits at the server: the first answer lets the next
// call be the trial. A connection of its own is made for each, since those of the pool may be dead.
const (
	probeFirst = 10 * time.Millisecond // between two probes, then twice as long each time
	probeMost  = 100 * time.Millisecond
	probeLasts = time.Second // a probe that is not answered
)

// probe begins to probe the server, if its circuit waits for that and nobody does so.
func (s *Store) probe() {
	if !s.shared.Awaits(s.opts.Name) || !s.probes.under.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.probes.under.Store(false)
		for pause := probeFirst; s.shared.Awaits(s.opts.Name) && !s.shared.Closed.Load(); pause = min(2*pause, probeMost) {
			if s.serves() {
				s.shared.Answered(s.opts.Name)
				return
			}
			time.Sleep(pause)
		}
	}()
}

// serves reports whether the server lets a client in and answers.
func (s *Store) serves() bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeLasts)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		state, _ := stateOf(err)
		return state != "" && state[:2] != "57" && state[:2] != "53" // it answers, and the trial shows what is wrong
	}
	defer conn.Close(ctx)
	return conn.Ping(ctx) == nil
}
