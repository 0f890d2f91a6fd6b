package standalone_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// What the children of TestFleetAfterAnOutage get: their server, and the calls per second
// of each, 0 for as many as are answered.
const (
	fleetAddr = "HEADGATE_FLEET_ADDR"
	fleetRate = "HEADGATE_FLEET_RATE"
)

const (
	fleetSize = 64
	atWork    = "at work" // the number of children that are
)

// fleetSlice is the resolution of what a child reports.
const fleetSlice = 50 * time.Millisecond

// TestFleetAfterAnOutage: 64 processes make four fifths of the calls that their server can
// decide. It is away for a second. A quarter of a second after it is back the store
// decides 99 % of them, and no circuit opens again. The server has a processor when it
// needs one, as on a host of its own.
func TestFleetAfterAnOutage(t *testing.T) {
	if _, ok := redistest.Child(); ok {
		fleetProcess(t)
		return
	}
	if !redistest.Long() {
		t.Skip("it takes all of the machine")
	}
	server := redistest.Start(t)
	server.Prefer()
	addr := fleetAddr + "=" + server.Addr()
	decided := 0
	for _, s := range fleetSlices(t, redistest.Processes(t, fleetSize, t.Name(), addr, fleetRate+"=0")) {
		decided += s.decided
	}
	rate := 0.8 * float64(decided) / fleetLasts(0).Seconds() / fleetSize
	for _, kind := range []string{"stopped", "killed"} {
		t.Run(kind, func(t *testing.T) {
			back := make(chan time.Time, 1)
			require.NoError(t, server.Client(t).Del(context.Background(), atWork).Err())
			go func() { back <- fleetOutage(t, server, kind) }()
			lines := redistest.Processes(t, fleetSize, "TestFleetAfterAnOutage", addr, fmt.Sprintf("%s=%f", fleetRate, rate))
			var after, late fleetPart
			from := (<-back).Add(250 * time.Millisecond).UnixMilli()
			for _, s := range fleetSlices(t, lines) {
				if s.at >= from {
					after.decided, after.undecided, after.openings = after.decided+s.decided, after.undecided+s.undecided, after.openings+s.openings
				} else {
					late.undecided, late.openings = late.undecided+s.undecided, late.openings+s.openings
				}
			}
			share := float64(after.decided) / float64(after.decided+after.undecided)
			t.Logf("%.0f calls per second and process; before: %d undecided, %d openings; from 0.25 s after it on: %.2f %% of %d decided, %d openings",
				rate, late.undecided, late.openings, 100*share, after.decided+after.undecided, after.openings)
			require.Positive(t, late.undecided)
			require.Zero(t, after.openings)
			require.GreaterOrEqual(t, share, 0.99)
		})
	}
}

// fleetOutage takes the server away once the children are at work, and returns when it
// answered again.
func fleetOutage(t *testing.T, server *redistest.Server, kind string) time.Time {
	ctx, client := context.Background(), server.Client(t)
	for n := 0; n < fleetSize; n, _ = client.Get(ctx, atWork).Int() {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(2 * time.Second)
	if kind == "killed" {
		server.Kill()
		time.Sleep(time.Second)
		server.Restart(t)
		server.Prefer()
		return time.Now()
	}
	server.Stop()
	time.Sleep(time.Second)
	defer server.Cont()
	return time.Now()
}

// fleetPart is what callers of a child got in one slice.
type fleetPart struct {
	at                           int64 // Unix milliseconds
	decided, undecided, openings int
}

func fleetSlices(t *testing.T, lines []string) (all []fleetPart) {
	for _, line := range lines {
		for part := range strings.FieldsSeq(line) {
			var p fleetPart
			_, err := fmt.Sscanf(part, "%d:%d:%d:%d", &p.at, &p.decided, &p.undecided, &p.openings)
			require.NoError(t, err, part)
			all = append(all, p)
		}
	}
	return all
}

// fleetLasts is how long a child calls.
func fleetLasts(rate float64) time.Duration {
	if rate == 0 {
		return 5 * time.Second
	}
	return 35 * time.Second
}

// fleetProcess is a child. Its four callers begin each call at its time, also after an
// outage: calls that were due meanwhile are left out.
func fleetProcess(t *testing.T) {
	var rate float64
	_, err := fmt.Sscan(os.Getenv(fleetRate), &rate)
	require.NoError(t, err)
	store, err := standalone.Open("redis://"+os.Getenv(fleetAddr), nil)
	require.NoError(t, err)
	defer store.Close()
	var seen faulttest.Observed
	l := seen.Limiter(t, store, faulttest.Bucket)
	child, _ := redistest.Child()
	redistest.Ready()
	client := redis.NewClient(&redis.Options{Addr: os.Getenv(fleetAddr)})
	require.NoError(t, client.Incr(context.Background(), atWork).Err())
	require.NoError(t, client.Close())
	var mu sync.Mutex
	parts, openings := map[int64]*fleetPart{}, int64(0)
	const callers = 4
	until := time.Now().Add(fleetLasts(rate))
	faulttest.Go(callers, func(c int) {
		next := time.Now()
		for i := 0; time.Now().Before(until); i++ {
			if rate > 0 {
				next = next.Add(time.Duration(callers / rate * float64(time.Second)))
				if late := time.Since(next); late > fleetSlice {
					next = next.Add(late)
				}
				time.Sleep(time.Until(next))
			}
			began := time.Now().UnixMilli() / fleetSlice.Milliseconds() * fleetSlice.Milliseconds()
			d, err := l.Allow(context.Background(), faulttest.Key(100*child+c, i, 20))
			mu.Lock()
			p := parts[began]
			if p == nil {
				p = &fleetPart{at: began}
				parts[began] = p
			}
			if err == nil && d.Err == nil {
				p.decided++
			} else {
				p.undecided++
			}
			if o := seen.Openings.Load(); o > openings {
				p.openings, openings = p.openings+int(o-openings), o
			}
			mu.Unlock()
		}
	})()
	var out []string
	for _, p := range parts {
		out = append(out, fmt.Sprintf("%d:%d:%d:%d", p.at, p.decided, p.undecided, p.openings))
	}
	slices.Sort(out)
	redistest.Result("%s", strings.Join(out, " "))
}
