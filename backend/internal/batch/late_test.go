package batch

import (
	"testing"
	"time"

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
