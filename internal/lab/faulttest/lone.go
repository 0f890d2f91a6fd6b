package faulttest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// Lone is what one caller got that makes one call after the other.
type Lone struct {
	First    time.Duration // from the first call to the first decision by the store; 0: none
	Calls    int           // after the first decision
	Decided  int           // of these, by the store
	Perhaps  int           // of all calls: perhaps counted
	Openings int64         // circuits that opened
	Cause    error         // of the last call that was not decided
	Longest  time.Duration // of a call

	seen    Observed
	limiter *headgate.Limiter
}

// Share is the share of the calls after the first decision that the store decided.
func (l *Lone) Share() float64 { return float64(l.Decided) / float64(max(l.Calls, 1)) }

// NewLone returns the caller. The store is new.
func NewLone(t testing.TB, s backend.Store) *Lone {
	t.Helper()
	l := &Lone{}
	var err error
	l.limiter, err = headgate.New(s, []headgate.Policy{Bucket}, &headgate.Options{Observer: l.seen.Observe})
	require.NoError(t, err)
	return l
}

// Run makes calls for d, with a pause after each.
func (l *Lone) Run(d, pause time.Duration) {
	begin := time.Now()
	for i := 0; time.Since(begin) < d; i++ {
		called := time.Now()
		d, err := l.limiter.Allow(context.Background(), Key(0, i, 20))
		l.Longest = max(l.Longest, time.Since(called))
		l.count(d.Source == headgate.FromStore, errors.Join(err, d.Err), time.Since(begin))
		time.Sleep(pause)
	}
	l.Openings = l.seen.Openings.Load()
}

// count counts a call that was answered so long after the first one began.
func (l *Lone) count(decided bool, err error, after time.Duration) {
	if errors.Is(err, headgate.ErrPerhapsCounted) {
		l.Perhaps++
	}
	if !decided {
		l.Cause = err
	}
	switch {
	case l.First > 0:
		l.Calls++
		if decided {
			l.Decided++
		}
	case decided:
		l.First = after
	}
}

// RequireFar requires what a lone caller may expect over a link whose round trip is so
// long, of a client that keeps some connections spare.
func RequireFar(t *testing.T, got *Lone, trip time.Duration, dialled, spare int) {
	t.Helper()
	t.Logf("first decision after %v, then %d of %d; %d perhaps counted, %d openings, %d connections, longest %v; %v",
		got.First.Round(time.Millisecond), got.Decided, got.Calls, got.Perhaps, got.Openings, dialled, got.Longest, got.Cause)
	require.Positive(t, got.First)
	require.LessOrEqual(t, got.First, time.Second+12*trip)
	// Beside other tests a short run has few calls, and the processor is late for some.
	require.GreaterOrEqual(t, got.Share(), float64(redistest.Steps(40, 99))/100)
	require.LessOrEqual(t, got.Perhaps, redistest.Steps(3, 1))
	require.Zero(t, got.Openings)
	require.LessOrEqual(t, dialled, spare+redistest.Steps(4, 2), "a busy machine adds to a round trip, and so to connections")
}
