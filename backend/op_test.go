package backend_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestCells: takes, peeks and reserves may have several keys. Every other operation of
// several keys is ErrUnsupported, and so is an operation that has no row.
func TestCells(t *testing.T) {
	policies := []backend.Policy{{Name: "p", Algorithm: algo.TokenBucket(algo.PerSecond(5), 5), OnFailure: backend.FailOpen}}
	several := map[backend.Op]bool{backend.Take: true, backend.Peek: true, backend.Reserve: true}
	all := backend.Capabilities{Ops: ^backend.Ops(0), Keys: backend.MaxKeys}
	for op := backend.Op(1); op.String() != "unknown"; op++ {
		r := backend.Request{
			Op: op, Group: backend.Group{Key: "a", Policies: policies, Cost: 1, Lease: &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute}},
			Loan: &backend.Loan{ID: backend.LeaseID{1}, Seq: 1, Term: 10 * time.Millisecond},
		}
		require.NoError(t, r.Check(context.Background(), all), "%v", op)
		r.And = []backend.Group{{Key: "b", Policies: policies, Cost: 1, Lease: r.Lease}}
		switch err := r.Check(context.Background(), all); {
		case several[op]:
			require.NoError(t, err, "%v", op)
		default:
			require.ErrorIs(t, err, backend.ErrUnsupported, "%v", op)
		}
	}
	r := backend.Request{Op: backend.Reserve, Group: backend.Group{Key: "a", Policies: policies, Cost: 1, Lease: &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute}}}
	other := []backend.Policy{{Name: "q", Algorithm: policies[0].Algorithm, OnFailure: backend.FailOpen}}
	r.And = []backend.Group{{Key: "a", Policies: other, Cost: 1, Lease: r.Lease}}
	require.ErrorAs(t, r.Check(context.Background(), all), new(*backend.InvalidError), "one ID for two leases of a key")
	for _, op := range []backend.Op{0, backend.Return + 1, 255} {
		r := backend.Request{Op: op, Group: backend.Group{Key: "a", Policies: policies, Cost: 1}}
		require.ErrorIs(t, r.Check(context.Background(), backend.Capabilities{Ops: backend.Basic.Ops, Keys: 1}), backend.ErrUnsupported)
	}
}

// TestRuns: a take may be of several equal calls, and no other operation.
func TestRuns(t *testing.T) {
	policies := []backend.Policy{{Name: "p", Algorithm: algo.TokenBucket(algo.PerSecond(5), 5), OnFailure: backend.FailOpen}}
	all := backend.Capabilities{Ops: ^backend.Ops(0), Keys: backend.MaxKeys}
	r := backend.Request{Op: backend.Take, Group: backend.Group{Key: "a", Policies: policies, Cost: 4, Run: 2}}
	require.NoError(t, r.Check(context.Background(), all))
	for _, run := range []int64{-1, 3, backend.MaxRun + 1} {
		r.Run = run
		require.ErrorAs(t, r.Check(context.Background(), all), new(*backend.InvalidError), "%d", run)
	}
	r.Cost, r.UpTo = 1, true
	for run, ok := range map[int64]bool{0: false, 1: true, 3: true, backend.MaxRun: true, backend.MaxRun + 1: false} {
		r.Run = run
		err := r.Check(context.Background(), all)
		require.Equal(t, ok, err == nil, "%d: %v", run, err)
	}
	r.Run, r.Cost = backend.MaxRun/2, 3
	require.ErrorAs(t, r.Check(context.Background(), all), new(*backend.InvalidError), "more units than a number holds")
	r.Run, r.Cost, r.UpTo = 2, 4, false
	for _, op := range []backend.Op{backend.Peek, backend.Record, backend.Reset} {
		r.Op = op
		require.ErrorIs(t, r.Check(context.Background(), all), backend.ErrUnsupported, "%v", op)
	}
	r.Op, r.And = backend.Take, []backend.Group{{Key: "b", Policies: policies, Cost: 4}}
	require.ErrorIs(t, r.Check(context.Background(), all), backend.ErrUnsupported)
	r.Run, r.And[0].Run = 0, 2
	require.ErrorIs(t, r.Check(context.Background(), all), backend.ErrUnsupported)
}

// TestWords: operations, sources and failure modes are one word each in metrics and logs,
// with _ as its only separator.
func TestWords(t *testing.T) {
	word := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	for op := backend.Op(0); op <= backend.Return; op++ {
		require.Regexp(t, word, op.String())
	}
	for s := backend.FromStore; s <= backend.FromNone; s++ {
		require.Regexp(t, word, s.String())
	}
	for m := backend.FailureMode(0); m <= backend.FailLocal; m++ {
		require.Regexp(t, word, m.String())
	}
}
