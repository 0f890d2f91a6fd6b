//go:build go1.25

package denial

import (
	"context"
	"runtime"
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

// refreshing is a wrapper whose denial of the key "k" holds for a while yet, and
// which a caller refreshes until answer is called.
func refreshing(t *testing.T, do func(*backend.Request) (backend.Decision, error)) (f *fake, s *Store, answer func()) {
	f, s = denied(t, time.Minute, one, 1)
	f.advance(Longest * 3 / 4)
	hold := make(chan struct{})
	f.do = func(r *backend.Request) (backend.Decision, error) {
		<-hold
		return do(r)
	}
	go func() {
		defer func() { _ = recover() }()
		_, _ = layer.Ask(context.Background(), s, take("k", one, 1))
	}()
	synctest.Wait()
	require.EqualValues(t, 2, f.asked.Load())
	return f, s, func() { close(hold) }
}

// TestDeniedCallsWait for the caller that asks, for a short time, and are denied
// from memory then.
func TestDeniedCallsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s, answer := refreshing(t, denies(time.Minute))
		begin := time.Now()
		require.True(t, cached(t, s, take("k", one, 1)))
		require.Equal(t, held, time.Since(begin), "without an answer")
		go func() {
			time.Sleep(held / 2)
			answer()
		}()
		begin = time.Now()
		require.True(t, cached(t, s, take("k", one, 1)))
		require.Equal(t, held/2, time.Since(begin), "until the answer")
		f.advance(Longest/2 - 1) // the refreshed denial outlasts the first
		require.True(t, cached(t, s, take("k", one, 1)))
	})
}

// TestDeniedCallsAskAfterAPass: what the caller that asks finds to pass denies
// nobody any more.
func TestDeniedCallsAskAfterAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, answer := refreshing(t, leaves(9))
		go func() {
			time.Sleep(held / 2)
			answer()
		}()
		require.True(t, ask(t, s, take("k", one, 1)).Allowed)
	})
}

// TestRefreshLost: after a panic in the caller that asks, no call waits.
func TestRefreshLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, answer := refreshing(t, func(*backend.Request) (backend.Decision, error) { panic("a hook of the user's") })
		answer()
		synctest.Wait()
		begin := time.Now()
		require.True(t, cached(t, s, take("k", one, 1)))
		require.Zero(t, time.Since(begin))
	})
}

// TestResetLost: a Reset may have taken effect though its goroutine ended below. What
// was denied meanwhile is forgotten.
func TestResetLost(t *testing.T) {
	for _, batch := range []bool{false, true} {
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
			if batch {
				s.DoAll(t.Context(), []backend.Request{reset}, make([]layer.Answer, 1))
			} else {
				ask(t, s, reset)
			}
		}()
		<-done
		require.False(t, cached(t, s, take("k", one, 1)))
	}
}

// TestWaitEndsWithTheContext: a denied call waits no longer than its caller.
func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s, answer := refreshing(t, denies(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), held/2)
		defer cancel()
		begin := time.Now()
		_, err := layer.Ask(ctx, s, take("k", one, 1))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, held/2, time.Since(begin))
		require.EqualValues(t, 3, f.asked.Load(), "next words the error, and sends nothing")
		answer()
	})
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
// for all limiters on the store.
func TestPassedForAll(t *testing.T) {
	f, s := denied(t, time.Minute, one, 2)
	require.True(t, cached(t, s, take("k", one, 2)))
	f.do = leaves(3)
	require.True(t, ask(t, s, take("k", one, 1)).Allowed)
	require.True(t, cached(t, s, take("k", one, 2)), "a smaller cost says nothing of it")
	short := f.wrapper(time.Millisecond)
	f.advance(time.Millisecond)
	require.True(t, ask(t, short, take("k", one, 2)).Allowed)
	require.False(t, cached(t, s, take("k", one, 2)))
}
