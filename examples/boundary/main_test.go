package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/headgate-go/headgate/internal/script"
	"github.com/stretchr/testify/require"
)

func Example() {
	if err := run(context.Background(), os.Stdout, embedded(), plain); err != nil {
		fmt.Println(err)
	}
	// Output:
	// limit 50 in 10s: 50 calls 1s before a window's boundary, 50 calls 1s after
	//
	// algorithm       admitted  stated worst   verdict
	// FixedWindow          100           100   50 over the limit, as it states
	// SlidingWindow         55           100   5 over the limit, as it states
	// TokenBucket           60           100   10 over the limit, as it states
	// BucketedWindow        50            50   holds the limit
	// SlidingLog            50            50   holds the limit
	//
	//                    -1s                       │                       +1s
	// FixedWindow     50 █████████████████████████ │ █████████████████████████ 50
	// SlidingWindow   50 █████████████████████████ │ ██▌······················  5
	// TokenBucket     50 █████████████████████████ │ █████···················· 10
	// BucketedWindow  50 █████████████████████████ │ ·························  0
	// SlidingLog      50 █████████████████████████ │ ·························  0
	//                                           boundary
	// █ two calls passed  ▌ one passed  · both denied
}

// TestOnAServer plays the same scene on a real server whose clock is ours:
// the same calls must pass.
func TestOnAServer(t *testing.T) {
	s := embedded()
	want := new(bytes.Buffer)
	require.NoError(t, run(context.Background(), want, s, plain))

	redis := redistest.Shared(t)
	now := s.boundary
	s.store = standalone.New(
		script.Virtual{Client: redis.Client(t), Now: func() time.Time { return now }},
		&standalone.Options{Budget: 10 * time.Second})
	s.reach = func(_ context.Context, t time.Time) error { now = t; return nil }
	got := new(bytes.Buffer)
	require.NoError(t, run(context.Background(), got, s, plain))
	require.Equal(t, want.String(), got.String())

	left, err := redis.Client(t).Keys(context.Background(), "headgate:{boundary:*").Result()
	require.NoError(t, err)
	require.Empty(t, left, "a run forgets its key")
}

func TestNextBoundary(t *testing.T) {
	for from, want := range map[string]string{"12:00:00": "12:00:10", "12:00:09": "12:00:10", "12:00:10": "12:00:20"} {
		at, err := time.Parse(time.TimeOnly, from)
		require.NoError(t, err)
		require.Equal(t, want, next(at.AddDate(2025, 0, 0)).Format(time.TimeOnly))
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		passed int
		exact  bool
		broken bool
	}{
		{"as its rule says", 55, true, false},
		{"one too few", 54, true, true},
		{"a later burst", 56, false, false},
		{"above its worst", 101, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := cast()[1]
			if !c.exact {
				r.expect = 0
			}
			for range c.passed {
				r.passed[0] = append(r.passed[0], true)
			}
			require.Equal(t, c.broken, judge([]*row{r}) != nil)
		})
	}
}
