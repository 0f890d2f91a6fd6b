package shard_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/shard"
	"github.com/stretchr/testify/require"
)

// TestADenialIsTakenBack before the next share is asked: a decision is zero
// before a store gets it.
func TestADenialIsTakenBack(t *testing.T) {
	m := memory.New(nil)
	s, ps := shard.New(plain{faulttest.Strict{Store: m, T: t}}, m), one(algo.FixedWindow(algo.Per(20, algo.MaxPeriod)), 2)
	part := []backend.Policy{{Name: "p", Algorithm: ps.policies[0].Algorithm.Part(0, 2)}}
	for i := range 30 { // half of them ask the spent share first
		key := fmt.Sprint(i)
		do(t, s, peek(key, ps, 1)) // the sum before the first take
		r := take(key, spreadList{part, 0}, 10)
		r.Sub = shard.Names(key, 2)[0]
		require.True(t, do(t, m, r).Allowed)
		require.True(t, do(t, s, take(key, ps, 1)).Allowed)
	}
}

// TestCallsLeaveNothingBehind for the next, which is made in the same place.
func TestCallsLeaveNothingBehind(t *testing.T) {
	s, _ := over(t)
	do(t, s, take("k", one(algo.FixedWindow(algo.PerDay(64)), 4), 1))
	require.Zero(t, shard.Left())
}

// TestASumLeftBehind by its caller goes on with nothing of his.
func TestASumLeftBehind(t *testing.T) {
	s, c, _ := counting(t)
	ps := one(algo.FixedWindow(algo.PerDay(64)), 64)
	for do(t, s, take("k", ps, 1)).Allowed {
	}
	before := runtime.NumGoroutine()
	c.gate = make(chan struct{})
	ctx, leave := context.WithTimeout(context.Background(), 25*time.Millisecond)
	defer leave()
	fresh := shard.New(plain{c}, struct{ backend.Store }{c}) // which knows nothing
	_, err := layer.Ask(ctx, fresh, take("k", ps, 1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(c.gate)
	require.Eventually(t, func() bool {
		return runtime.NumGoroutine() <= before+1 // the condition's own
	}, 20*time.Second, time.Millisecond, "the sum ends")
}
