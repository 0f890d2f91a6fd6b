//go:build go1.25

package denial

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

const callers = 64

// lapsed is a station whose one entry, on the key "k", has just lapsed, and
// where each trip takes a while from now on.
func lapsed(t *testing.T, trip time.Duration, do func(r *backend.Request) (backend.Decision, error)) (*fake, *Store) {
	f, s := denied(t, 10*time.Millisecond, one, 1)
	f.advance(10 * time.Millisecond)
	f.asked.Store(0)
	f.do = func(r *backend.Request) (backend.Decision, error) {
		time.Sleep(trip)
		return do(r)
	}
	return f, s
}

// crowd asks at once and returns how many were answered by which source.
func crowd(t *testing.T, s *Store, n int) (by [backend.FromDenyCache + 1]int) {
	answers := make(chan backend.Source, n)
	for range n {
		go func() { answers <- ask(t, s, take("k", one, 1)).Source }()
	}
	for range n {
		by[<-answers]++
	}
	return by
}

// TestOneAsks: when an entry lapses one call asks, and what it hears is the
// others' answer too.
func TestOneAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := lapsed(t, 20*time.Millisecond, denies(time.Second))
		begin := time.Now()
		by := crowd(t, s, callers)
		require.EqualValues(t, 1, f.asked.Load())
		require.Equal(t, callers-1, by[backend.FromDenyCache])
		require.Equal(t, 20*time.Millisecond, time.Since(begin))
	})
}

// TestNobodyWaitsWithoutAnEntry: for a key of which nothing is known.
func TestNobodyWaitsWithoutAnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := lapsed(t, 20*time.Millisecond, denies(time.Second))
		s.cache.forget("k")
		begin := time.Now()
		crowd(t, s, callers)
		require.EqualValues(t, callers, f.asked.Load())
		require.Equal(t, 20*time.Millisecond, time.Since(begin))
	})
}

// TestAsManyAskAsThereIsRoomFor, once one has passed, and one more for the
// rest: else each unit that comes free would cost a call of everybody.
func TestAsManyAskAsThereIsRoomFor(t *testing.T) {
	for _, room := range []int64{0, 3, callers} {
		synctest.Test(t, func(t *testing.T) {
			var passed atomic.Int64
			f, s := lapsed(t, time.Millisecond, func(r *backend.Request) (backend.Decision, error) {
				if left := room - passed.Add(1) + 1; left >= 0 {
					return leaves(min(left, 9))(r)
				}
				return denies(time.Second)(r)
			})
			if room == callers {
				f.do = func(r *backend.Request) (backend.Decision, error) {
					time.Sleep(time.Millisecond)
					return backend.Decision{Allowed: true, State: backend.State{Policy: "a", Remaining: room}}, nil
				}
			}
			begin := time.Now()
			by := crowd(t, s, callers)
			if room == callers {
				require.EqualValues(t, callers, f.asked.Load())
				require.Equal(t, 2*time.Millisecond, time.Since(begin), "all at once, where there is room for all")
				require.Zero(t, s.cache.entries())
				return
			}
			// One, as many as it left room for, and one again, which may pass before one of those.
			require.GreaterOrEqual(t, f.asked.Load(), room+2)
			require.LessOrEqual(t, f.asked.Load(), 2*room+2)
			require.EqualValues(t, callers, int(f.asked.Load())+by[backend.FromDenyCache])
		})
	}
}

// TestFailsFast: whoever waits for a call that failed at once asks for itself.
// A lost reply must not decide for a crowd.
func TestFailsFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := lapsed(t, time.Millisecond, unavailable)
		crowd(t, s, callers)
		require.EqualValues(t, callers, f.asked.Load())
		require.Zero(t, f.failed.Load())
	})
}

// TestFailsLate: who waited for a call that spent its budget has none left,
// and is decided by its failure mode.
func TestFailsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := lapsed(t, 100*time.Millisecond, unavailable)
		begin := time.Now()
		by := crowd(t, s, callers)
		require.EqualValues(t, 1, f.asked.Load())
		require.EqualValues(t, callers-1, f.failed.Load())
		require.Equal(t, callers, by[backend.FromFailClosed])
		require.Equal(t, 100*time.Millisecond, time.Since(begin), "no call takes two budgets")
		require.False(t, cached(t, s, take("k", one, 1)), "nobody waits for a store that fails")
	})
}

// TestFailureSaysWhatIsKnown: nothing was sent for a call that waited, whatever
// became of the one it waited for.
func TestFailureSaysWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := lapsed(t, 100*time.Millisecond, func(*backend.Request) (backend.Decision, error) {
			return backend.Decision{}, backend.ErrPerhapsCounted
		})
		go func() { _, _ = backend.Ask(context.Background(), s, take("k", one, 1)) }()
		synctest.Wait()
		r := take("k", one, 1)
		r.Charge = &backend.Charge{Outcome: backend.Taken}
		d := ask(t, s, r)
		require.ErrorIs(t, d.Err, backend.ErrUnavailable)
		require.NotErrorIs(t, d.Err, backend.ErrPerhapsCounted)
		require.Equal(t, backend.NotTaken, r.Charge.Outcome)
	})
}

// TestLeaderLost: one who panics, ends its goroutine or is gone before the
// answer keeps nobody waiting; another asks.
func TestLeaderLost(t *testing.T) {
	for name, lose := range map[string]func(*backend.Request) (backend.Decision, error){
		"panic":   func(*backend.Request) (backend.Decision, error) { panic("a hook of the user's") },
		"goexit":  func(*backend.Request) (backend.Decision, error) { runtime.Goexit(); return backend.Decision{}, nil },
		"invalid": func(*backend.Request) (backend.Decision, error) { return backend.Decision{}, &backend.InvalidError{} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, s := lapsed(t, time.Millisecond, lose)
				go func() {
					defer func() { _ = recover() }()
					_, _ = backend.Ask(context.Background(), s, take("k", one, 1))
				}()
				synctest.Wait()
				f.do = denies(time.Second)
				by := crowd(t, s, callers)
				require.EqualValues(t, 2, f.asked.Load())
				require.Equal(t, callers-1, by[backend.FromDenyCache])
			})
		})
	}
}

// TestImpatientLeader: its own end, which the failure mode words, is nobody
// else's.
func TestImpatientLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := lapsed(t, 20*time.Millisecond, unavailable)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		go func() { _, _ = backend.Ask(ctx, s, take("k", one, 1)) }()
		synctest.Wait()
		f.do = denies(time.Second)
		crowd(t, s, callers)
		require.Zero(t, f.failed.Load())
		require.LessOrEqual(t, f.asked.Load(), int64(callers+1))
	})
}

// TestWaiterLeaves when its context ends; nothing was sent for it.
func TestWaiterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := lapsed(t, 100*time.Millisecond, denies(time.Second))
		go func() { _, _ = backend.Ask(context.Background(), s, take("k", one, 1)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err := backend.Ask(ctx, s, take("k", one, 1))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 10*time.Millisecond, time.Since(begin))
		require.EqualValues(t, 1, f.asked.Load())
		time.Sleep(100 * time.Millisecond) // the leader's trip
	})
}

// TestWaitsOnce for a slow call: who is late asks for itself.
func TestWaitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := lapsed(t, 20*time.Millisecond, leaves(0))
		begin := time.Now()
		crowd(t, s, callers)
		require.EqualValues(t, callers, f.asked.Load())
		require.Equal(t, 40*time.Millisecond, time.Since(begin), "not a trip after the other")
	})
}

// TestResetWhileOthersWait: what the leader then hears is from before it.
func TestResetWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := lapsed(t, 20*time.Millisecond, denies(time.Second))
		go func() { _, _ = backend.Ask(context.Background(), s, take("k", one, 1)) }()
		synctest.Wait()
		answer := make(chan backend.Decision)
		go func() { answer <- ask(t, s, take("k", one, 1)) }()
		synctest.Wait()
		f.do = leaves(9)
		reset := take("k", one, 1)
		reset.Op = backend.Reset
		ask(t, s, reset)
		require.True(t, (<-answer).Allowed)
	})
}

// TestPassedForAll: what one station found to pass does not stay denied for
// another that lets answers stand for longer.
func TestPassedForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := denied(t, time.Second, one, 1)
		f.advance(100 * time.Millisecond)
		f.do = func(r *backend.Request) (backend.Decision, error) {
			time.Sleep(time.Millisecond)
			return leaves(0)(r)
		}
		short := f.station(100 * time.Millisecond)
		for range 3 { // one asks, passes, and the next asks for the third
			go ask(t, short, take("k", one, 1))
		}
		time.Sleep(time.Millisecond + time.Microsecond)
		require.True(t, ask(t, s, take("k", one, 1)).Allowed)
		time.Sleep(10 * time.Millisecond) // the last of the three
	})
}

// TestWaitersKeepTheBudget: who has waited asks in what is left of it.
func TestWaitersKeepTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := lapsed(t, 50*time.Millisecond, leaves(0))
		f.heeds = true
		begin := time.Now()
		crowd(t, s, callers)
		require.Equal(t, f.Budget(), time.Since(begin))
		require.Positive(t, f.failed.Load())
		time.Sleep(time.Second) // the trips that nobody waits for
	})
}
