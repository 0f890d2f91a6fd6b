// Package faulttest holds what every store on Redis must show under real
// faults and real races: the same tests on one server and on a cluster.
package faulttest

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/stretchr/testify/require"
)

// Callers is how many call at once.
const Callers = 64

// Faults sets a fault on all that lies between a store and its servers.
type Faults interface {
	Set(redistest.Fault)
	Every(n int) // only each n-th round trip from the last Set on is hit
	Hit() int    // round trips hit so far
}

// Wide is a policy that no test comes near the limit of.
var Wide = headgate.Policy{Name: "wide", Algorithm: algo.FixedWindow(algo.Per(1000, algo.MaxPeriod)), OnFailure: headgate.FailClosed}

// Huge is one that a test may take from as fast as it can.
var Huge = headgate.Policy{Name: "huge", Algorithm: algo.TokenBucket(algo.Per(1, algo.MaxPeriod), algo.MaxLimit), OnFailure: headgate.FailClosed}

// Limiter returns a limiter on s.
func Limiter(t testing.TB, s backend.Store, policies ...headgate.Policy) *headgate.Limiter {
	t.Helper()
	l, err := headgate.New(s, policies, nil)
	require.NoError(t, err)
	return l
}

// Used returns what is counted for a key.
func Used(t testing.TB, l *headgate.Limiter, key string) int64 {
	d, err := l.Peek(context.Background(), headgate.Call{Key: key})
	if err != nil || d.Err != nil {
		t.Error(err, d.Err)
	}
	return d.Used
}
