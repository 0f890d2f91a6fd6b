package standalone_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// silences makes a call after each of n silences, once the store has decided, and
// returns how many were decided and how many perhaps counted, and the longest call.
func silences(t *testing.T, l *headgate.Limiter, n int, silence func()) (decided, perhaps int, longest time.Duration) {
	for i := range n {
		silence()
		begin := time.Now()
		d, err := l.Allow(context.Background(), faulttest.Key(0, i, 20))
		assert.NoError(t, err)
		longest = max(longest, time.Since(begin))
		switch {
		case d.Source == headgate.FromStore:
			decided++
		default:
			t.Log(d.Err)
			if !unavailable(d.Err) {
				perhaps++
			}
		}
	}
	return decided, perhaps, longest
}

// TestClosedWhileIdle: the server closes idle connections, also over TLS. A client of
// Open's does not send on them; a user's is tried after a second of silence.
func TestClosedWhileIdle(t *testing.T) {
	t.Parallel()
	_, addr, all := ways(t, "--timeout", "1")
	ls, seen, n := make([]*headgate.Limiter, len(all)), make([]faulttest.Observed, len(all)), redistest.Steps(1, 20)
	for i, w := range all {
		ls[i] = seen[i].Limiter(t, w.store(t, addr(w), patient), faulttest.Bucket)
	}
	faulttest.Go(len(all), func(i int) {
		decided, perhaps, longest := silences(t, ls[i], n, func() { time.Sleep(2500 * time.Millisecond) })
		t.Logf("%v: %d of %d decided, %d perhaps counted, longest %v", all[i], decided, n, perhaps, longest)
		assert.Equal(t, n, decided, all[i])
		assert.Zero(t, seen[i].Openings.Load(), all[i])
	})()
}

// TestForgottenWhileIdle: something on the way forgets connections that are silent. The
// first call after a silence finds out within its budget.
func TestForgottenWhileIdle(t *testing.T) {
	if !redistest.Long() {
		t.Skip("HEADGATE_LONG: the silence takes 12 s; TestSilentConnection of backend/internal/client has a shorter one")
	}
	t.Parallel()
	const callers, turns = 34, 3
	_, addr, all := ways(t)
	type of struct {
		limiter          *headgate.Limiter
		decided, perhaps int
		longest          time.Duration
	}
	made := make([]of, callers*len(all))
	for i := range made {
		w := all[i%len(all)]
		relay := redistest.NewRelay(t, addr(w), time.Millisecond)
		relay.ForgetSilent(11 * time.Second)
		made[i].limiter = faulttest.Limiter(t, w.store(t, relay.Addr(), nil), faulttest.Bucket)
	}
	faulttest.Go(len(made), func(i int) {
		m := &made[i]
		time.Sleep(time.Duration(i) * 12 * time.Second / time.Duration(len(made))) // not all at once
		_, _, _ = silences(t, m.limiter, 5, func() { time.Sleep(100 * time.Millisecond) })
		m.decided, m.perhaps, m.longest = silences(t, m.limiter, turns, func() { time.Sleep(12 * time.Second) })
	})()
	for i, w := range all {
		var sum of
		for j := i; j < len(made); j += len(all) {
			m := made[j]
			sum.decided, sum.perhaps, sum.longest = sum.decided+m.decided, sum.perhaps+m.perhaps, max(sum.longest, m.longest)
		}
		t.Logf("%v: %d of %d decided, %d perhaps counted, longest %v", w, sum.decided, callers*turns, sum.perhaps, sum.longest)
		assert.GreaterOrEqual(t, float64(sum.decided), 0.99*callers*turns)
		assert.LessOrEqual(t, sum.perhaps, 1)
	}
}

// TestPriceOfSilence prints the duration of the first call after 10 s of silence, and of the
// next one. The connection lives, or was forgotten.
func TestPriceOfSilence(t *testing.T) {
	if !redistest.Long() {
		t.Skip("HEADGATE_LONG: the silence takes 11 s")
	}
	t.Parallel()
	_, addr, all := ways(t)
	patient := &standalone.Options{Budget: time.Second}
	for _, w := range all {
		for _, link := range []struct {
			trip      time.Duration
			forgotten bool
			options   *standalone.Options
		}{{0, false, patient}, {time.Millisecond, false, patient}, {20 * time.Millisecond, false, patient}, {0, true, nil}, {time.Millisecond, true, nil}} {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				relay := redistest.NewRelay(t, addr(w), link.trip)
				if link.forgotten {
					relay.ForgetSilent(10 * time.Second)
				}
				l := faulttest.Limiter(t, w.store(t, relay.Addr(), link.options), faulttest.Wide)
				took := func() time.Duration {
					begin := time.Now()
					d, err := l.Allow(context.Background(), "k")
					require.NoError(t, err)
					require.NoError(t, d.Err)
					return time.Since(begin)
				}
				took()
				time.Sleep(11 * time.Second)
				t.Logf("%v, link %v, forgotten %v: the first call takes %v, the next %v", w, link.trip, link.forgotten, took(), took())
			})
		}
	}
}

func unavailable(err error) bool { return errors.Is(err, headgate.ErrUnavailable) }
