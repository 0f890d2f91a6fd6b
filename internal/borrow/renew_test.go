//go:build go1.25

package borrow

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// Near the limit a loan would last less than two round trips: then each call asks the store.
func TestLastUnitsAreNotLent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(memory.New(nil), algo.FixedWindow(algo.PerDay(1_000)))
		p.next.trip.Store(int64(4 * time.Millisecond))
		var passed []backend.Source
		for d := p.call(t); d.Allowed; d = p.call(t) {
			passed = append(passed, d.Source)
			time.Sleep(length / 100)
		}
		require.Len(t, passed, 1_000)
		require.Contains(t, passed, backend.FromLoan)
		require.NotContains(t, passed[len(passed)-6:], backend.FromLoan)
		p.shared.Close()
		time.Sleep(time.Minute)
	})
}
