package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/redistest"
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
	// each sign is two calls: █ both passed  ▌ one passed  · none passed
}

// TestOnAServer plays the same scene on a real server whose clock is ours:
// the same calls must pass.
func TestOnAServer(t *testing.T) {
	redis := redistest.Shared(t)
	s, err := server(context.Background(), redis.Addr())
	require.NoError(t, err)
	plays(t, s, func(now func() time.Time) backend.Store {
		return standalone.New(clock.Client{Processor: redis.Client(t), Now: now}, &standalone.Options{Budget: 10 * time.Second})
	})
	left, err := redis.Client(t).Keys(context.Background(), "headgate:{boundary:*").Result()
	require.NoError(t, err)
	require.Empty(t, left, "a run forgets its key")
}

// TestOnACluster is the same on a cluster.
func TestOnACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster: some 2.5 s")
	}
	c := redistest.StartCluster(t)
	s, err := nodes(context.Background(), c.Addrs())
	require.NoError(t, err)
	plays(t, s, func(now func() time.Time) backend.Store {
		return cluster.New(clock.Cluster{ClusterOptions: c.Client(t), Now: now}, &cluster.Options{Budget: 10 * time.Second})
	})
}

// plays has s played on a store whose clock is ours, and what passes held
// against what does in memory.
func plays(t *testing.T, s *scene, on func(now func() time.Time) backend.Store) {
	require.WithinRange(t, s.boundary, time.Now().Add(distance), time.Now().Add(distance+ready+window))
	want := new(bytes.Buffer)
	e := embedded()
	require.NoError(t, run(context.Background(), want, e, plain))

	now := e.boundary
	s.store, s.boundary, s.exact = on(func() time.Time { return now }), e.boundary, true
	s.reach = func(_ context.Context, t time.Time) error { now = t; return nil }
	got := new(bytes.Buffer)
	require.NoError(t, run(context.Background(), got, s, plain))
	require.NoError(t, s.store.Close())
	require.Equal(t, want.String(), got.String())
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
