package otellimit_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/middleware/otellimit"
	"github.com/stretchr/testify/require"
)

// TestBorrow: what a limiter has borrowed, given back and used.
func TestBorrow(t *testing.T) {
	m, reader := start(t, nil)
	store, err := standalone.Open("redis://"+redistest.Start(t).Addr(), nil)
	require.NoError(t, err)
	l, err := headgate.New(store, []headgate.Policy{{
		Name: "api", Algorithm: algo.FixedWindow(algo.PerDay(1 << 30)), OnFailure: headgate.FailClosed,
	}}, &headgate.Options{Borrow: time.Second})
	require.NoError(t, err)
	require.NoError(t, m.Borrow(l))
	require.Error(t, m.Borrow(l))
	atHome := 0.0
	for range 2000 {
		d, err := l.Allow(ctx, "key")
		require.NoError(t, err)
		if d.Source == headgate.FromLoan {
			atHome++
		}
	}
	require.NotEmpty(t, read(t, reader)["headgate.borrow.keys {key}"])
	require.Eventually(t, func() bool { // when the key rests
		units := read(t, reader)["headgate.borrow.units {unit}"]
		// A lease that a busy process did not settle in time is not given back.
		return units["units=used"] == atHome && units["units=given_back"] > 0 && units["units=lent"] >= atHome+units["units=given_back"]
	}, 20*time.Second, 10*time.Millisecond)
	require.Positive(t, read(t, reader)["headgate.borrow.requests {request}"]["result=answered"])
	require.NoError(t, m.Close())
	require.NoError(t, (*otellimit.Metrics)(nil).Borrow(l))
	require.NoError(t, store.Close())
}
