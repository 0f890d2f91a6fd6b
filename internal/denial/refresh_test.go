//go:build go1.25

package denial

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestOneAsksBeforeTheEnd: of a denial that outlasts the time that answers stand,
// one caller asks before that time ends, and the others are answered meanwhile.
func TestOneAsksBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := denied(t, time.Minute, one, 1)
		f.advance(Longest*3/4 - 1)
		require.True(t, cached(t, s, take("k", one, 1)))
		f.advance(1)
		hold := make(chan struct{})
		f.do = func(r *backend.Request) (backend.Decision, error) {
			<-hold
			return denies(time.Minute)(r)
		}
		go ask(t, s, take("k", one, 1))
		synctest.Wait()
		for range 10 {
			require.True(t, cached(t, s, take("k", one, 1)))
		}
		f.advance(Longest / 4)
		go ask(t, s, take("k", one, 1)) // the denial has ended: every caller asks
		synctest.Wait()
		require.EqualValues(t, 3, f.asked.Load())
		close(hold)
		synctest.Wait()
		require.True(t, cached(t, s, take("k", one, 1)))
	})
}

// TestDeniedCallsYield: denied calls let other goroutines run, once per slice, for a while
// after the answer came and while a caller asks again.
func TestDeniedCallsYield(t *testing.T) {
	f, s := denied(t, time.Minute, one, 1)
	yields := func(want bool) {
		t.Helper()
		before := s.yielded.Load()
		require.True(t, cached(t, s, take("k", one, 1)))
		require.Equal(t, want, s.yielded.Load() != before)
	}
	yields(true)
	f.advance(slice - 1)
	yields(false)
	f.advance(1)
	yields(true)
	f.advance(under - slice - 1)
	yields(true)
	f.advance(slice)
	yields(false)
	f.advance(Longest*3/4 - under)
	f.do = func(*backend.Request) (d backend.Decision, _ error) {
		yields(true)
		return d, backend.ErrUnavailable
	}
	_, err := layer.Ask(t.Context(), s, take("k", one, 1))
	require.ErrorIs(t, err, backend.ErrUnavailable)
}

// TestOthersRunBetweenDenials: callers without a pause do not keep the processor until the
// scheduler takes it from them, which lasts for thousands of calls.
func TestOthersRunBetweenDenials(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f, s := denied(t, time.Minute, one, 1)
	var ran atomic.Bool
	calls := 0
	go ran.Store(true)
	for ; !ran.Load(); calls++ {
		f.advance(time.Microsecond)
		require.True(t, cached(t, s, take("k", one, 1)))
	}
	require.LessOrEqual(t, calls, 200)
}

// TestResetLost: a Reset may have taken effect though its goroutine ended below. What
// was denied meanwhile is forgotten.
func TestResetLost(t *testing.T) {
	f := &fake{do: denies(time.Minute)}
	s, reset := f.wrapper(Longest), take("k", one, 1)
	reset.Op = backend.Reset
	f.do = func(*backend.Request) (backend.Decision, error) {
		f.do = denies(time.Minute)
		require.False(t, cached(t, s, take("k", one, 1)))
		runtime.Goexit()
		return backend.Decision{}, nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ask(t, s, reset)
	}()
	<-done
	require.False(t, cached(t, s, take("k", one, 1)))
}

// TestNobodyAsksEarly: of a denial that ends sooner than answers stand, nobody
// asks before it does.
func TestNobodyAsksEarly(t *testing.T) {
	f, s := denied(t, Longest, one, 1)
	f.advance(Longest - 1)
	require.True(t, cached(t, s, take("k", one, 1)))
	f.advance(1)
	require.False(t, cached(t, s, take("k", one, 1)))
}

// TestNobodyWaits: when a denial has ended, callers that ask don't wait for each
// other.
func TestNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := denied(t, 10*time.Millisecond, one, 1)
		f.advance(10 * time.Millisecond)
		hold := make(chan struct{})
		f.do = func(r *backend.Request) (backend.Decision, error) {
			<-hold
			return leaves(1)(r)
		}
		for range 5 {
			go ask(t, s, take("k", one, 1))
		}
		synctest.Wait()
		require.EqualValues(t, 1+5, f.asked.Load())
		close(hold)
	})
}

// TestPassedForAll: a call that passes ends the denials that would have denied it,
// for all limiters on the store, also if its own limiter remembers none.
func TestPassedForAll(t *testing.T) {
	f, s := denied(t, time.Minute, one, 2)
	require.True(t, cached(t, s, take("k", one, 2)))
	f.do = leaves(3)
	record := take("k", one, 2)
	record.Op = backend.Record
	require.True(t, ask(t, s, record).Allowed)
	require.True(t, cached(t, s, take("k", one, 2)), "it passes, whatever is used")
	require.True(t, ask(t, f.wrapper(-1), take("k", one, 2)).Allowed)
	f.do = denies(time.Minute)
	require.False(t, cached(t, s, take("k", one, 2)))
	require.True(t, cached(t, s, take("k", one, 2)))
	f.do = leaves(3)
	require.True(t, ask(t, s, take("k", one, 1)).Allowed)
	require.True(t, cached(t, s, take("k", one, 2)), "a smaller cost says nothing of it")
	short := f.wrapper(time.Millisecond)
	f.advance(time.Millisecond)
	require.True(t, ask(t, short, take("k", one, 2)).Allowed)
	require.False(t, cached(t, s, take("k", one, 2)))
}
