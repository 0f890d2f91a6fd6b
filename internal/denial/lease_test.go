package denial

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestReserveIsAnswered as a take is, and notes its denials, so that a flood of them on
// a spent key asks as seldom.
func TestReserveIsAnswered(t *testing.T) {
	_, s := denied(t, time.Minute, one, 1)
	r := take("k", one, 1)
	r.Op, r.Lease = backend.Reserve, &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute}
	require.True(t, cached(t, s, r))
	r.Key = "other"
	require.False(t, cached(t, s, r))
	require.True(t, cached(t, s, r))
	require.True(t, cached(t, s, take("other", one, 1)))
}

// TestAtMostIsAnswered where there is no room for one unit, and notes that, whatever it
// asked for.
func TestAtMostIsAnswered(t *testing.T) {
	atMost := func(key string, n int64) backend.Request { return upTo(key, one, n) }
	_, s := denied(t, time.Minute, one, 1)
	require.True(t, cached(t, s, atMost("k", 5)))
	require.False(t, cached(t, s, atMost("other", 5)))
	require.True(t, cached(t, s, atMost("other", 2)))
	require.True(t, cached(t, s, take("other", one, 1)))
	_, s = denied(t, time.Minute, one, 3)
	require.False(t, cached(t, s, atMost("k", 5)), "there may be room for two")
}

// TestDenialsHold through what gives nothing back.
func TestDenialsHold(t *testing.T) {
	for _, op := range []backend.Op{backend.Extend, backend.Record, backend.Peek} {
		f, s := denied(t, time.Second, one, 1)
		r := take("k", one, 1)
		r.Op, r.Lease = op, &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute}
		before := f.asked.Load()
		_, _ = layer.Ask(context.Background(), s, r)
		require.Equal(t, before+1, f.asked.Load())
		require.True(t, cached(t, s, take("k", one, 1)), op)
	}
}

// TestSlotsAreAsked each time: another call may end at any time. A denial by another
// policy of the list is cached.
func TestSlotsAreAsked(t *testing.T) {
	slots := backend.Policy{Name: "slots", Algorithm: algo.InFlight(3), OnFailure: backend.FailClosed}
	for _, byRate := range []bool{true, false} {
		list := append([]backend.Policy{slots}, one...) // the last binds
		if !byRate {
			list[0], list[1] = list[1], list[0]
		}
		f := &fake{do: denies(time.Minute)}
		s := f.wrapper(Longest)
		r := take("k", list, 1)
		r.Op, r.Lease = backend.Reserve, &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute}
		require.False(t, cached(t, s, r))
		require.Equal(t, byRate, cached(t, s, r))
	}
}
