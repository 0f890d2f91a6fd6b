package headgate_test

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// usedOf returns what the states count.
func usedOf(each []headgate.State) (used []int64) {
	for i := range each {
		if each[i].Known == backend.NotCounted {
			return nil
		}
		used = append(used, each[i].Used)
	}
	return used
}

// TestCommitEach: a settlement returns what is left after it, in its one round trip.
func TestCommitEach(t *testing.T) {
	ctx, server := context.Background(), redistest.Start(t)
	list := []headgate.Policy{
		{Name: "calls", Algorithm: algo.CompactLog(algo.PerDay(100)), OnFailure: headgate.FailClosed},
		{Name: "tokens", Algorithm: algo.FixedWindow(algo.PerDay(1000)), OnFailure: headgate.FailClosed},
		{Name: "running", Algorithm: algo.InFlight(2), OnFailure: headgate.FailClosed},
	}
	for name, s := range map[string]backend.Store{"memory": memory.New(nil), "server": unhurried(t, server)} {
		t.Run(name, func(t *testing.T) {
			l, each := limiter(t, s, nil, list...), make([]headgate.State, 3)
			for _, c := range []struct{ actual, want []int64 }{
				{[]int64{1, 250, 1}, []int64{1, 250, 0}}, {nil, []int64{2, 550, 0}}, {[]int64{3, 600, 1}, []int64{5, 1150, 0}},
			} {
				r, d, err := l.Reserve(ctx, headgate.Call{Key: "k", Costs: []int64{1, 300, 1}})
				require.NoError(t, err)
				require.True(t, d.Allowed)
				before := server.CommandStats(t)["evalsha"].Calls
				require.NoError(t, r.CommitEach(ctx, each, c.actual...))
				require.Equal(t, c.want, usedOf(each))
				require.Equal(t, name == "server", server.CommandStats(t)["evalsha"].Calls == before+1)
			}
			require.NotZero(t, each[1].RetryAfter, "of one unit")
			require.Zero(t, each[0].RetryAfter)
		})
	}
}

// TestCommitEachUnknown: the states are zero where nothing is known, or nothing is held.
func TestCommitEachUnknown(t *testing.T) {
	ctx, s, each := context.Background(), newLossy(), make([]headgate.State, 2)
	l := reserving(t, s, headgate.FailClosed)
	spoilt := func() {
		each[0], each[1] = headgate.State{Used: 7, Known: backend.Exact}, headgate.State{Used: 7, Known: backend.Exact}
	}
	r, _ := reserve(t, l, 400)
	require.ErrorAs(t, r.CommitEach(ctx, make([]headgate.State, 1)), new(*headgate.InvalidError))
	s.lose(0, onSettle)
	spoilt()
	require.ErrorIs(t, r.CommitEach(ctx, each, 1, 250), headgate.ErrPerhapsCounted)
	require.Nil(t, usedOf(each))
	s.lose(0, 0)
	require.NoError(t, r.CommitEach(ctx, each, 1, 250), "the same one again")
	require.Equal(t, []int64{1, 250}, usedOf(each))
	require.ErrorIs(t, r.CommitEach(ctx, each, 1, 250), headgate.ErrNotHeld)
	require.Nil(t, usedOf(each))
	spoilt()
	require.NoError(t, new(headgate.Reservation).CommitEach(ctx, each))
	require.Nil(t, usedOf(each))
}

// TestCommitEachResumed: the order is that of the limiter that settles.
func TestCommitEachResumed(t *testing.T) {
	ctx, s, each := context.Background(), memory.New(nil), make([]headgate.State, 2)
	calls, tokens := daily("calls", 100), daily("tokens", 1000)
	r := resumed(t, limiter(t, s, nil, calls, tokens), limiter(t, s, nil, tokens, calls))
	require.ErrorAs(t, r.CommitEach(ctx, each[:1], 250, 1), new(*headgate.InvalidError))
	require.NoError(t, r.CommitEach(ctx, each, 250, 1))
	require.Equal(t, []int64{250, 1}, usedOf(each))
}

// TestCommitEachOfKeys: a list of states for each key, in the order reserved.
func TestCommitEachOfKeys(t *testing.T) {
	ctx, s := context.Background(), memory.New(nil)
	users, orgs := reserving(t, s, headgate.FailClosed), limiter(t, s, nil, daily("tokens", 1000))
	rs, _, err := headgate.ReserveAll(ctx, users.Part("u", 1, 400), orgs.Part("o", 400))
	require.NoError(t, err)
	each := [][]headgate.State{make([]headgate.State, 2), make([]headgate.State, 1)}
	require.ErrorAs(t, rs.CommitEach(ctx, each[:1]), new(*headgate.InvalidError))
	require.NoError(t, rs.CommitEach(ctx, each, []int64{1, 250}, []int64{250}))
	require.Equal(t, []int64{1, 250}, usedOf(each[0]))
	require.Equal(t, []int64{250}, usedOf(each[1]))
	require.NoError(t, rs.CommitEach(ctx, each, []int64{1, 250}, []int64{250}), "repeated")
	require.Nil(t, usedOf(each[1]))
}

// TestEventsOfSettlements carry what is left, and an excess that crosses the share of the
// limit is near it once.
func TestEventsOfSettlements(t *testing.T) {
	ctx, server := context.Background(), redistest.Start(t)
	for name, s := range map[string]backend.Store{"memory": memory.New(nil), "server": unhurried(t, server)} {
		t.Run(name, func(t *testing.T) {
			seen := &events{}
			shadow := daily("shadow", 1000)
			shadow.Shadow = true
			l := limiter(t, s, &headgate.Options{Observer: seen.observe}, daily("tokens", 1000), shadow)
			for _, c := range []struct {
				actual, used int64
				near         bool
			}{
				{600, 600, false}, {200, 800, true}, {150, 950, false}, {10, 960, false},
			} {
				r, _, err := l.Reserve(ctx, headgate.Call{Key: "k", Costs: []int64{50, 50}})
				require.NoError(t, err)
				seen.forget()
				require.NoError(t, r.Commit(ctx, c.actual, 50))
				e := seen.of(headgate.EventDecision)[0]
				require.True(t, e.Decision.Allowed)
				require.Equal(t, "tokens", e.Decision.Policy)
				require.Equal(t, c.used, e.Decision.Used)
				require.Equal(t, c.near, e.Near != nil, "%+v", c)
				require.Nil(t, e.Shadow, "it decides nothing")
			}
		})
	}
}
