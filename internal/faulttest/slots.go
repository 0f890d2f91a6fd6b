package faulttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/stretchr/testify/require"
)

const (
	slotLease = time.Second
	slotKey   = "running"
)

func slotted(slots int) []headgate.Policy {
	return []headgate.Policy{
		closed("slots", algo.InFlight(int64(slots))),
		closed("rate", algo.FixedWindow(algo.Per(1_000_000, algo.MaxPeriod))),
	}
}

// Slots lets some processes, as 64, share fewer slots, as 20, and kills half of them in a
// call. Never are there more unexpired leases than slots, all are free one lease and a
// second after the last death, and the rate policy beside them counts the calls that
// passed. The test calls Slots before anything else; see Races.
func Slots(t *testing.T, holders, slots int, open func() backend.Store, start func() (env string)) {
	if i, ok := redistest.Child(); ok {
		hold(t, Limiter(t, open(), slotted(slots)...), i)
		return
	}
	lines := redistest.Processes(t, holders, t.Name(), start())
	died := time.Now()
	s := open()
	defer s.Close()
	l := Limiter(t, s, slotted(slots)...)
	free := false
	for !free && time.Since(died) < slotLease+time.Second {
		free = running(t, l)[0] == 0
	}
	require.True(t, free, "%v after the last death", time.Since(died))
	freed := time.Since(died)
	calls, unfinished := intervals(t, lines)
	require.Positive(t, unfinished)
	most := overlap(calls)
	t.Logf("%d calls of %d processes, %d killed in one; at most %d at once; all slots free after %v", len(calls), holders, unfinished, most, freed)
	require.LessOrEqual(t, most, slots)
	require.Greater(t, most, slots/2, "the processes contended")
	require.EqualValues(t, len(calls), running(t, l)[1], "a denial by the slots is charged to nobody")
	for range slots {
		_, d, err := l.Reserve(t.Context(), headgate.Call{Key: slotKey})
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
}

// running is what the policies count.
func running(t *testing.T, l *headgate.Limiter) (used [2]int64) {
	each := make([]headgate.State, 2)
	_, err := l.Peek(context.Background(), headgate.Call{Key: slotKey, Costs: []int64{0, 0}, Each: each})
	require.NoError(t, err)
	return [2]int64{each[0].Used, each[1].Used}
}

// hold is a child of Slots: it makes calls, and each odd one dies in a call. It reports
// a call's begin when the lease is surely there, and its end while it still is.
func hold(t *testing.T, l *headgate.Limiter, child int) {
	redistest.Ready()
	ends := time.Now().Add(time.Duration(redistest.Steps(2, 20)) * time.Second)
	for i := 0; time.Now().Before(ends) || child%2 == 1; i++ {
		sent := time.Now()
		r, d, err := l.Reserve(t.Context(), headgate.Call{Key: slotKey, Lease: slotLease})
		require.NoError(t, err)
		require.NoError(t, d.Err)
		if !d.Allowed {
			time.Sleep(time.Duration(20+rand.IntN(40)) * time.Millisecond)
			continue
		}
		dies := child%2 == 1 && time.Now().After(ends.Add(-time.Second))
		call(t, r, fmt.Sprintf("%d/%d", child, i), sent, dies)
	}
}

// call holds a slot for a while, now and then for longer than a lease.
func call(t *testing.T, r *headgate.Reservation, name string, sent time.Time, dies bool) {
	redistest.Result("begin %s %d %d", name, time.Now().UnixMicro(), sent.Add(slotLease).UnixMicro())
	ctx, release := r.Hold(t.Context())
	length := time.Duration(10+rand.IntN(150)) * time.Millisecond
	if rand.IntN(20) == 0 {
		length += slotLease
	}
	select {
	case <-time.After(length):
	case <-ctx.Done(): // the machine was too busy to extend in time: the slot is lost
	}
	if dies {
		redistest.Die()
	}
	held := ctx.Err() == nil
	if held {
		redistest.Result("end %s %d 0", name, time.Now().UnixMicro())
	}
	release()
	if err := r.Commit(t.Context()); held {
		require.NoError(t, err)
	}
}

// interval is a part of a call's lease, in µs.
type interval struct{ begin, end int64 }

// intervals returns the calls, and how many of them did not end. Of these the lease ran
// for at least its length.
func intervals(t *testing.T, lines []string) (calls []interval, unfinished int) {
	for _, child := range lines {
		begun := map[string]interval{}
		for line := range strings.Lines(child) {
			var what, name string
			var at, until int64
			_, err := fmt.Sscan(line, &what, &name, &at, &until)
			require.NoError(t, err, line)
			if what == "end" {
				calls = append(calls, interval{begun[name].begin, at})
				delete(begun, name)
				continue
			}
			begun[name] = interval{at, until}
		}
		for _, c := range begun {
			calls = append(calls, c)
		}
		unfinished += len(begun)
	}
	return calls, unfinished
}

// overlap returns the most intervals that hold one instant, which is where one begins.
// An interval does not hold its end.
func overlap(calls []interval) (most int) {
	for _, at := range calls {
		n := 0
		for _, c := range calls {
			if c.begin <= at.begin && at.begin < c.end {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
