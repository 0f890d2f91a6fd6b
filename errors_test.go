package headgate_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/stretchr/testify/require"
)

// TestErrorsHaveOnePrefix: an error says once that it is Headgate's, and once
// what is known of the count, however many errors it wraps.
func TestErrorsHaveOnePrefix(t *testing.T) {
	one := func(err error) {
		t.Helper()
		require.Error(t, err)
		for _, once := range []string{"headgate: ", "not counted", "unavailable"} {
			require.LessOrEqual(t, strings.Count(err.Error(), once), 1, err)
		}
		require.True(t, strings.HasPrefix(err.Error(), "headgate: "), err)
	}
	ctx := context.Background()
	bad := perMinute
	bad.Algorithm = algo.FixedWindow(algo.PerDay(0))
	_, err := headgate.New(memory.New(nil), []headgate.Policy{bad}, nil)
	one(err)
	spread := perMinute
	spread.Algorithm = algo.TokenBucket(algo.Per(3_000_001, algo.MaxPeriod), 100)
	l, err := headgate.New(memory.New(nil), []headgate.Policy{perMinute}, nil)
	require.NoError(t, err)
	other, err := l.With(spread)
	require.NoError(t, err)
	if _, err = other.WithShards(7); err != nil {
		one(err)
	}
	_, err = l.AllowN(ctx, "k", 101)
	one(err)
	require.ErrorIs(t, err, headgate.ErrNeverAdmissible)
	var invalid *headgate.InvalidError
	require.ErrorAs(t, err, &invalid)

	one(dead(t, func(string) (backend.Store, error) { return standalone.Open("redis://127.0.0.1:1", nil) }, 1))
	one(dead(t, func(string) (backend.Store, error) { return cluster.Open([]string{"127.0.0.1:1"}, nil) }, 1))
	one(dead(t, func(string) (backend.Store, error) { return standalone.Open("redis://127.0.0.1:1", nil) }, 16))
	one(dead(t, func(string) (backend.Store, error) { return cluster.Open([]string{"127.0.0.1:1"}, nil) }, 16))
}

// dead returns the cause that the last of some calls names, of a store that
// nobody answers for, and resets, which has no failure mode.
func dead(t *testing.T, open func(string) (backend.Store, error), calls int) error {
	t.Helper()
	s, err := open("")
	require.NoError(t, err)
	defer s.Close()
	p := perMinute
	p.OnFailure = headgate.FailClosed
	l, err := headgate.New(s, []headgate.Policy{p}, &headgate.Options{Shards: 16})
	require.NoError(t, err)
	for range calls - 1 {
		_, _ = l.Allow(context.Background(), "k")
	}
	d, err := l.Allow(context.Background(), "k")
	require.NoError(t, err)
	err = l.Reset(context.Background(), "k")
	require.ErrorIs(t, err, headgate.ErrUnavailable)
	return errors.Join(d.Err)
}

// TestOneSignature: what a user opens a store with returns a store and an error.
func TestOneSignature(t *testing.T) {
	for name, open := range map[string]func() (backend.Store, error){
		"addresses": func() (backend.Store, error) { return cluster.Open(nil, nil) },
		"budget":    func() (backend.Store, error) { return cluster.Open([]string{"a:1"}, &cluster.Options{Budget: 1}) },
		"prefix":    func() (backend.Store, error) { return standalone.Open("redis://a:1", &standalone.Options{Prefix: " "}) },
	} {
		s, err := open()
		var invalid *headgate.InvalidError
		require.ErrorAs(t, err, &invalid, name)
		require.Equal(t, name, invalid.What)
		require.Nil(t, s)
	}
}
