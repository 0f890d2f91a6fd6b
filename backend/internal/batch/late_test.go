package batch

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestLateProcessHasMoreTime: a round trip has one budget more if this process was late by
// itself, once. It has none if the server has answered others since: then its reply is lost.
func TestLateProcessHasMoreTime(t *testing.T) {
	const budget = 100 * ms
	for _, c := range []struct {
		name     string
		late     time.Duration
		answered bool
		more     time.Duration
	}{
		{"punctual", 4 * ms, false, 0},
		{"late", 30 * ms, false, budget},
		{"late, and others were answered", 30 * ms, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewServer(near(0), "node", Settings{Budget: budget, Shared: &layer.Shared{}})
			r := &roundTrip{queue: NewQueue(s, nil)}
			r.first, r.began = now(), now()
			ends := Deadline(r.first, budget)
			r.mu.ends, r.mu.rings = ends, ends
			if c.answered {
				s.served.Store(int64(r.began + ms))
			}
			require.Equal(t, ends+c.more, r.prolonged(ends+c.late))
			if c.more > 0 {
				require.Equal(t, ends+c.more, r.prolonged(ends+c.late+budget), "once")
			}
		})
	}
}

// TestRefusedCallsYield: each call that the circuit refuses lets other processes run first.
func TestRefusedCallsYield(t *testing.T) {
	yields := 0
	defer func(old func()) { yield = old }(yield)
	yield = func() { yields++ }
	hub := &layer.Shared{}
	hub.SetGuard(shut{})
	q := NewQueue(NewServer(near(0), "node", Settings{Prefix: names.DefaultPrefix, Budget: 100 * ms, Shared: hub}), nil)
	refused := error(backend.ErrUnavailable)
	q.server.shut.Store(&refused)
	defer hub.Closed.Store(true) // which ends the probe
	for range 5 {
		require.ErrorIs(t, q.refusal(), backend.ErrUnavailable)
	}
	require.Equal(t, 5, yields)
}

// shut is a guard whose circuit is open.
type shut struct{ layer.Guard }

func (shut) Enter(string) (func(error), error) { return nil, backend.ErrUnavailable }

func (shut) Awaits(string) bool { return true }

func (shut) Answered(string) {}
