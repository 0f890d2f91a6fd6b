package otellimit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/golden"
	"github.com/stretchr/testify/require"
)

// TestGolden: the names, units and attributes of all metrics, which dashboards and alerts read.
func TestGolden(t *testing.T) {
	m, reader := start(t, nil)
	policies := []headgate.Policy{{Name: "api", Algorithm: algo.SlidingWindow(algo.PerMinute(10)), OnFailure: headgate.FailOpen}}
	call := func(e headgate.Event) {
		e.Type, e.Policies, e.StoreTime = backend.EventDecision, policies, time.Millisecond
		m.Observe(e)
	}
	for op := backend.Take; op <= backend.Record; op++ {
		call(headgate.Event{Op: op, Decision: headgate.Decision{Allowed: true}, Shadow: &headgate.Decision{}})
	}
	for source := headgate.FromStore; source <= headgate.FromNone; source++ {
		call(headgate.Event{Op: backend.Take, Decision: headgate.Decision{Source: source}})
	}
	for _, err := range []error{
		headgate.ErrPerhapsCounted, &headgate.CorruptError{}, headgate.ErrUnavailable, headgate.ErrNeverAdmissible, headgate.ErrClosed,
		context.Canceled, context.DeadlineExceeded, &headgate.InvalidError{}, headgate.ErrNotHeld, headgate.ErrLeaseEnded, backend.ErrHeld, headgate.ErrUnsupported, errors.New("x"),
	} {
		call(headgate.Event{Op: backend.Take, Err: err})
	}
	for _, state := range []string{"closed", "open", "half_open"} {
		m.Observe(headgate.Event{Type: backend.EventCircuit, Circuit: backend.Change{Node: "node", To: state}})
	}
	m.Observe(headgate.Event{Type: backend.EventCircuit, Circuit: backend.Change{Node: "left", To: backend.Gone}})
	m.Observe(headgate.Event{Type: backend.EventBatch, Duration: time.Millisecond, Batch: backend.Batch{Node: "node", Calls: 1, Keys: 1}})
	m.Reloaded(nil)
	m.Reloaded(errors.New("x"))
	l, err := headgate.New(memory.New(nil), policies, &headgate.Options{Borrow: time.Second})
	require.NoError(t, err)
	require.NoError(t, m.Borrow(l))
	var b strings.Builder
	b.WriteString("# The metrics: name and unit, and each set of attributes without its \"headgate.\".\n")
	all := read(t, reader)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "\n%s\n", name)
		for _, set := range slices.Sorted(maps.Keys(all[name])) {
			if set != "" {
				fmt.Fprintf(&b, "\t%s\n", set)
			}
		}
	}
	golden.Equal(t, "metrics.golden", b.String())
}
