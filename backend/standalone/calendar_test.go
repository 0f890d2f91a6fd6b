package standalone_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/stretchr/testify/require"
)

// civil is a server whose clock, and this host's, a test sets.
type civil struct {
	server         *redistest.Server
	now, here      time.Time
	redis, process backend.Store
}

func newCivil(t *testing.T) *civil {
	c := &civil{server: redistest.Start(t)}
	clock := clock.Client{
		Processor: c.server.Client(t), Now: func() time.Time { return c.now }, Caller: func() time.Time { return c.here },
	}
	c.redis = standalone.New(clock, &standalone.Options{Budget: 10 * time.Second})
	c.process = memory.New(&memory.Options{Now: func() time.Time { return c.now }})
	t.Cleanup(func() { c.server.NoImmortals(t) })
	c.set(time.Unix(1e9, 0))
	q := take("a", calendars(algo.FixedWindow(algo.PerDay(1))), 1)
	q.Op = backend.Peek
	require.NoError(t, trace.Ask(t.Context(), c.redis, q).Err) // has loaded the script
	return c
}

func (c *civil) set(now time.Time) { c.now, c.here = now, now }

func calendars(as ...algo.Algorithm) (list []backend.Policy) {
	for i, a := range as {
		list = append(list, backend.Policy{Name: fmt.Sprint("p", i), Algorithm: a, OnFailure: backend.FailClosed})
	}
	return list
}

func take(key string, list []backend.Policy, n int64) backend.Request {
	return backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: list, Cost: n}}
}

// commands returns how many scripts ask runs.
func (c *civil) commands(t *testing.T, ask func()) int64 {
	before := c.server.CommandStats(t)["evalsha"].Calls
	ask()
	return c.server.CommandStats(t)["evalsha"].Calls - before
}

// TestCalendarZones lets three years pass in twelve zones: Redis and memory answer alike
// in every field, with the boundary of package time.
func TestCalendarZones(t *testing.T) {
	redistest.Plain(t)
	c, r := newCivil(t), rand.New(rand.NewPCG(1, 2))
	most := int64(redistest.Steps(120, 40)) * int64(time.Hour)
	for _, name := range []string{
		"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/St_Johns", "Asia/Amman",
		"Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "America/Havana", "Antarctica/Casey",
	} {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		list := calendars(algo.Calendar(5, algo.Day(), zone), algo.Calendar(20, algo.Week(time.Weekday(r.IntN(7))), zone),
			algo.Calendar(50, algo.Month(1+r.IntN(31)), zone))
		for now := time.Date(2010, 6, 1, 0, 0, 0, 0, time.UTC); now.Year() < 2013; now = now.Add(time.Duration(r.Int64N(most))) {
			c.set(now)
			for range 1 + r.IntN(3) {
				one := list[:1+2*r.IntN(2)]
				q := take(name, one, 1+r.Int64N(3))
				want, got := trace.Ask(t.Context(), c.process, q), trace.Ask(t.Context(), c.redis, q)
				require.NoError(t, trace.Same(want, got), "%s at %v", name, now)
				if y, m, d := now.In(zone).Date(); got.Each[0].Used > 0 && name != "America/St_Johns" {
					ends := now.Add(got.Each[0].ResetAfter).In(zone)
					require.True(t, ends.Add(-time.Microsecond).Day() == d || ends.Sub(now) < time.Hour, "%v, and it ends at %v", now.In(zone), ends)
					require.False(t, ends.Before(time.Date(y, m, d, 23, 0, 0, 0, zone)), "%v, and it ends at %v", now.In(zone), ends)
				}
			}
		}
	}
}

// TestCalendarTwoBoundaries: processes with different time zone data share a count
// and its end, whichever of them began it.
func TestCalendarTwoBoundaries(t *testing.T) {
	c := newCivil(t)
	old := calendars(algo.Calendar(10, algo.Day(), time.FixedZone("Europe/Berlin", 3600)))
	recent := calendars(algo.Calendar(10, algo.Day(), time.FixedZone("Europe/Berlin", 7200)))
	day := time.Date(2024, 5, 1, 23, 0, 0, 0, time.UTC) // to the old data
	ask := func(at time.Time, list []backend.Policy, n int64) backend.Decision {
		c.set(at)
		q := take("a", list, n)
		want, got := trace.Ask(t.Context(), c.process, q), trace.Ask(t.Context(), c.redis, q)
		require.NoError(t, trace.Same(want, got))
		return got.Decision
	}
	d := ask(day.Add(time.Minute), old, 4)
	require.Equal(t, 24*time.Hour-time.Minute, d.ResetAfter)
	d = ask(day.Add(time.Hour), recent, 6)
	require.True(t, d.Allowed)
	require.Equal(t, 23*time.Hour, d.ResetAfter)
	require.False(t, ask(day.Add(23*time.Hour+30*time.Minute), recent, 1).Allowed, "the day of the old data has not ended")
	d = ask(day.Add(24*time.Hour+time.Minute), recent, 10)
	require.True(t, d.Allowed)
	require.Equal(t, 23*time.Hour-time.Minute, d.ResetAfter, "the day that the recent data ends")
	require.False(t, ask(day.Add(46*time.Hour), old, 1).Allowed)
	d = ask(day.Add(47*time.Hour), old, 1) // an hour before the old data's day ends: it joins the next
	require.True(t, d.Allowed)
	require.Equal(t, 25*time.Hour, d.ResetAfter)
}

// TestCalendarCallerIsOff: a host's clock may be wrong by more than the boundaries
// that it sends. Then the script runs nothing, and is asked once more.
func TestCalendarCallerIsOff(t *testing.T) {
	c := newCivil(t)
	zone := time.FixedZone("Asia/Tokyo", 9*3600)
	month := calendars(algo.Calendar(3, algo.Day(), zone), algo.FixedWindow(algo.PerHour(5)))
	for i, list := range [][]backend.Policy{month[:1], month, {month[1], month[0]}} {
		for _, off := range []time.Duration{0, 24 * time.Hour, -24 * time.Hour, 48 * time.Hour, -10_000 * time.Hour} {
			c.now = time.Date(2024, 3, 9, 14, 59, 59, 0, time.UTC)
			c.here = c.now.Add(off)
			key, want := fmt.Sprint(i, off), int64(1)
			if off.Abs() > 24*time.Hour {
				want = 2
			}
			var a trace.Answer
			require.Equal(t, want, c.commands(t, func() { a = trace.Ask(t.Context(), c.redis, take(key, list, 3)) }), "%v off", off)
			require.NoError(t, trace.Same(trace.Ask(t.Context(), c.process, take(key, list, 3)), a))
			require.True(t, a.Decision.Allowed)
			require.EqualValues(t, 1, c.commands(t, func() { a = trace.Ask(t.Context(), c.redis, take(key, list, 1)) }), "what is stored stands")
			require.False(t, a.Decision.Allowed)
			require.Equal(t, time.Second, a.Decision.RetryAfter)
			require.EqualValues(t, 3, a.Each[slices.IndexFunc(list, func(p backend.Policy) bool { return p.Name == "p0" })].Used, "once")
		}
	}
}

// TestCalendarIsAskedTwice at most: a server whose clock leaps with each script
// leaves the call undecided, and nothing counted.
func TestCalendarIsAskedTwice(t *testing.T) {
	c := newCivil(t)
	leaps := clock.Client{Processor: c.server.Client(t), Now: func() time.Time {
		c.now = c.now.Add(100 * 24 * time.Hour)
		return c.now
	}, Caller: func() time.Time { return c.here }}
	store := standalone.New(leaps, patient)
	c.set(time.Date(2024, 3, 9, 0, 0, 0, 0, time.UTC))
	list := calendars(algo.Calendar(3, algo.Day(), time.UTC))
	var a trace.Answer
	require.EqualValues(t, 2, c.commands(t, func() { a = trace.Ask(t.Context(), store, take("a", list, 1)) }))
	require.ErrorIs(t, a.Err, backend.ErrUnavailable)
	require.False(t, errors.Is(a.Err, backend.ErrPerhapsCounted), "%v", a.Err)
	require.EqualValues(t, 0, c.server.Client(t).DBSize(t.Context()).Val())
}

// TestCalendarsOffInABatch: calls of several keys and lists, of which the script
// decides some at once and wants the others again: each is charged once.
func TestCalendarsOffInABatch(t *testing.T) {
	c := newCivil(t)
	c.now = time.Date(2024, 3, 9, 12, 0, 0, 0, time.UTC)
	c.here = c.now.Add(72 * time.Hour)
	lists := [][]backend.Policy{
		calendars(algo.Calendar(1000, algo.Day(), time.UTC)), calendars(algo.FixedWindow(algo.PerDay(1000))),
		calendars(algo.Calendar(1000, algo.Month(1), time.UTC), algo.SlidingLog(algo.PerDay(1000))),
	}
	const callers, calls = 24, 50
	done := make(chan error)
	for i := range callers {
		go func() {
			for j := range calls {
				var d backend.Decision
				q := take(fmt.Sprint("k", (i+j)%8), lists[i%len(lists)], 1)
				if err := c.redis.Do(context.Background(), &q, &d); err != nil || !d.Allowed {
					done <- fmt.Errorf("%+v: %w", d, err)
					return
				}
			}
			done <- nil
		}()
	}
	for range callers {
		require.NoError(t, <-done)
	}
	for i := range lists {
		sum := int64(0)
		for k := range 8 {
			q := take(fmt.Sprint("k", k), lists[i], 0)
			q.Op = backend.Peek
			d, err := layer.Ask(t.Context(), c.redis, q)
			require.NoError(t, err)
			sum += d.Used
		}
		require.EqualValues(t, callers/len(lists)*calls, sum)
	}
}

// TestCalendarLeases: a settlement on Redis corrects what one in memory does, also
// where the period has ended since, and the caller's clock is off.
func TestCalendarLeases(t *testing.T) {
	c := newCivil(t)
	zone := time.FixedZone("Europe/Berlin", 3600)
	day, month := algo.Calendar(100, algo.Day(), zone), algo.Calendar(1000, algo.Month(31), zone)
	for i, list := range [][]backend.Policy{calendars(day), calendars(month), calendars(day, month)} {
		for j, actual := range []int64{10, 40, 90, 0} {
			for k, later := range []time.Duration{time.Minute, time.Hour, 23 * time.Hour, 44 * time.Hour} {
				key := fmt.Sprint(i, j, k)
				do := func(op backend.Op, cost int64, l *backend.Lease) {
					r := backend.Request{Op: op, Group: backend.Group{Lease: l, Key: key, Policies: list, Cost: cost}}
					want, got := trace.Ask(t.Context(), c.process, r), trace.Ask(t.Context(), c.redis, r)
					if op == backend.Settle && got.Decision.Known == backend.NotCounted { // what it leaves is not known by such a clock
						require.NotEqual(t, c.now, c.here)
						want.Decision.State, want.Each = backend.State{}, make([]backend.State, len(list))
					}
					require.NoError(t, trace.Same(want, got), "%v by %v after %v", op, &list[0].Algorithm, later)
					require.NoError(t, got.Err)
				}
				c.set(time.Date(2024, 3, 30, 22, 0, 0, 0, time.UTC))
				l := &backend.Lease{ID: backend.LeaseID{byte(i), byte(j), byte(k), 1}, Length: 24 * time.Hour}
				do(backend.Take, 5, nil)
				do(backend.Reserve, 40, l)
				c.set(c.now.Add(later))
				c.here = c.now.Add(time.Duration(k) * -30 * time.Hour)
				l.Attempt = backend.LeaseID{9}
				for range list {
					l.Actual = append(l.Actual, actual)
				}
				do(backend.Settle, 0, l)
				do(backend.Peek, 1, nil)
				do(backend.Record, 50, nil)
			}
		}
	}
}

// TestCalendarLeaseOfAnotherList: a limiter that lists the Calendar behind another
// policy, or not at all, settles a lease. It does so too once the periods that were
// known at the Reserve are over.
func TestCalendarLeaseOfAnotherList(t *testing.T) {
	c := newCivil(t)
	list := calendars(algo.Calendar(100, algo.Day(), time.UTC))
	other := []backend.Policy{{Name: "new", Algorithm: algo.FixedWindow(algo.PerDay(9))}}
	for i, settles := range [][]backend.Policy{append(other, list...), other} {
		c.set(time.Date(2024, 3, 30, 22, 0, 0, 0, time.UTC))
		r := take(fmt.Sprint(i), list, 40)
		r.Op, r.Lease = backend.Reserve, &backend.Lease{ID: backend.LeaseID{1}, Length: 24 * time.Hour}
		require.True(t, trace.Ask(t.Context(), c.redis, r).Decision.Allowed)
		c.set(c.now.Add(47 * time.Hour))
		r.Op, r.Policies = backend.Settle, settles
		require.NoError(t, trace.Ask(t.Context(), c.redis, r).Err)
	}
}
