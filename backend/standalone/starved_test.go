package standalone_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// What the children of TestStarvedFleet are.
const (
	starvedAddr = "HEADGATE_STARVED_ADDR"
	starvedRow  = "HEADGATE_STARVED_ROW"
)

// starved is a fleet.
type starved struct {
	name           string
	procs, callers int
	open           func(addr string) (backend.Store, error)
	work           time.Duration // processor time per call, as a handler has
	idle           time.Duration // before all processes call at one instant
}

// starvedRows are the fleets of TestStarvedFleet. The first one is that of the short test.
var starvedRows = []starved{
	{"short", 24, 2, openStarved(nil), 200 * time.Microsecond, 0},
	{"closed loops", 64, 2, openStarved(nil), 0, 12 * time.Second},
	{"handlers", 64, 2, openStarved(nil), 200 * time.Microsecond, 12 * time.Second},
	{"handlers, few processes", 16, 16, openStarved(nil), 200 * time.Microsecond, 12 * time.Second},
	{"a user's client", 64, 2, func(addr string) (backend.Store, error) {
		return standalone.New(redis.NewClient(&redis.Options{Addr: addr}), nil), nil
	}, 200 * time.Microsecond, 12 * time.Second},
	{"unbatched", 64, 2, openStarved(&standalone.Options{DisableBatching: true}), 200 * time.Microsecond, 12 * time.Second},
}

func openStarved(o *standalone.Options) func(string) (backend.Store, error) {
	return func(addr string) (backend.Store, error) {
		s, err := standalone.Open("redis://"+addr, o)
		return s, err
	}
}

// TestStarvedFleet: many processes call at one instant, on few processors, beside a healthy
// server. What refuses a call, or passes it without a decision, takes no processor from what
// shows that the server is well. So the fleet decides nearly all from its second second on.
func TestStarvedFleet(t *testing.T) {
	rows, halves := starvedRows[:1], 6
	if redistest.Long() {
		rows, halves = starvedRows[1:], 16
	}
	if _, ok := redistest.Child(); ok {
		starvedProcess(t, halves)
		return
	}
	redistest.Plain(t)
	for i := range rows {
		row := rows[i]
		t.Run(row.name, func(t *testing.T) {
			decided, lost, server := make([]int, halves), make([]int, halves), redistest.Start(t)
			for _, lines := range redistest.Processes(t, row.procs, "TestStarvedFleet", starvedAddr+"="+server.Addr(), starvedRow+"="+row.name) {
				for line := range strings.Lines(lines) {
					var h, d, l int
					_, err := fmt.Sscan(line, &h, &d, &l)
					require.NoError(t, err, line)
					decided[h], lost[h] = decided[h]+d, lost[h]+l
				}
			}
			t.Logf("per half second: decided %v, not %v", decided, lost)
			all, late := 0, 0
			for h := 2; h < halves; h++ {
				all, late = all+decided[h]+lost[h], late+lost[h]
			}
			require.LessOrEqual(t, late*redistest.Steps(20, 1000), all)
		})
	}
}

// starvedProcess is a child of TestStarvedFleet.
func starvedProcess(t *testing.T, halves int) {
	i := slices.IndexFunc(starvedRows, func(r starved) bool { return r.name == os.Getenv(starvedRow) })
	row := starvedRows[i]
	s, err := row.open(os.Getenv(starvedAddr))
	require.NoError(t, err)
	defer s.Close()
	l := faulttest.Limiter(t, s, faulttest.Huge)
	_, err = l.Allow(context.Background(), "warm")
	require.NoError(t, err)
	redistest.Ready()
	time.Sleep(row.idle)
	decided, lost, begin := make([]atomic.Int64, halves), make([]atomic.Int64, halves), time.Now()
	faulttest.Go(row.callers, func(int) {
		for {
			h := int(time.Since(begin) / (time.Second / 2))
			if h >= halves {
				return
			}
			if d, _ := l.Allow(context.Background(), "key"); d.Source == headgate.FromStore {
				decided[h].Add(1)
			} else {
				lost[h].Add(1)
			}
			for at := time.Now(); time.Since(at) < row.work; {
			}
		}
	})()
	for h := range halves {
		redistest.Result("%d %d %d", h, decided[h].Load(), lost[h].Load())
	}
}
