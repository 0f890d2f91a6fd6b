package shard_test

import (
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/shard"
	"github.com/stretchr/testify/require"
)

// TestRecordAtMostOnSpreadKeys: a RecordAtMost charges each policy by itself what the
// sub-keys have room for, also if one policy has none, and if others have charged the key.
func TestRecordAtMostOnSpreadKeys(t *testing.T) {
	base := memory.New(nil)
	policies := two(algo.FixedWindow(algo.PerDay(800)), algo.FixedWindow(algo.PerDay(8)), 8)
	record := func(s backend.Store, op backend.Op, r backend.Request) []int64 {
		r.Op, r.Receipt = op, new(backend.Receipt)
		require.True(t, do(t, s, r).Allowed)
		return r.Receipt.Costs
	}
	for i, sub := range shard.SubKeys("k", 8) {
		part := two(policies[0].Algorithm.Part(int64(i), 8), policies[1].Algorithm.Part(int64(i), 8), 0)
		r := costing("k", part, 50, 1)
		r.Sub = sub
		record(base, backend.Record, r)
	}
	s := shard.New(plain{base}, base)
	require.Equal(t, []int64{300, 0}, record(s, backend.RecordAtMost, costing("k", policies, 300, 3)))
	require.Equal(t, []int64{100, 0}, record(s, backend.RecordAtMost, costing("k", policies, 300, 3)))
	require.Equal(t, []int64{0, 0}, record(s, backend.RecordAtMost, costing("k", policies, 1, 1)))
	require.Equal(t, []int64{1, 1}, record(s, backend.Record, costing("k", policies, 1, 1)))
}
