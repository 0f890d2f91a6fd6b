package shard_test

import (
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestNeverOver: four processes on one key of a real cluster; never more than
// the limit, whatever the algorithm and the load. make hotkeys does the same
// for every K, load and number of processes.
func TestNeverOver(t *testing.T) {
	if me, ok := redistest.Child(); ok {
		member(t, me)
		return
	}
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	var cells []cell
	for kind := range kinds(algo.PerDay(1)) {
		loads := []cell{
			{Kind: kind, K: 16, Limit: 1000, Load: 150}, {Kind: kind, K: 8, Limit: 301, Load: 300, Alone: true},
			{Kind: kind, K: 4, Limit: 400, Load: 200, Periods: 2}, {Kind: kind, K: 16, Limit: 1000, Load: 98},
		}
		if !redistest.Long() { // each kind under one of them
			loads = loads[kind%3:][:1]
		}
		cells = append(cells, loads...)
	}
	for _, o := range fleet(t, redistest.StartCluster(t), 4, cells) {
		a := o.algorithm()
		t.Logf("%v K %d load %d %%: %d passed, %d denied, %d wrong, %+v, %.2f commands, %v", &a, o.K, o.Load, o.passed, o.denied, o.wrong, o.stats, o.commands(), o.took)
		require.NoError(t, o.broken, "%v", &a)
		require.Zero(t, o.failed)
		require.Equal(t, o.calls(), o.decisions())
		if o.Periods == 0 {
			// Callers of one process leave to each other what a sum showed, so the
			// others may be denied a moment before the last unit is taken: once each.
			require.LessOrEqual(t, o.wrong, o.Procs*callers, "%v", &a)
		}
	}
}
