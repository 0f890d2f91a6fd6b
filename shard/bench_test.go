package shard_test

import (
	"fmt"
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// BenchmarkChoose is what spreading adds to a call: finding what is known of
// the key, and drawing the sub-key with its name and policies.
func BenchmarkChoose(b *testing.B) {
	for _, k := range []int{4, 16, 64, 1024} {
		b.Run(fmt.Sprint(k), func(b *testing.B) {
			s, _ := over(b)
			r := take("tenant:42", one(algo.FixedWindow(algo.PerMinute(1_000_000)), k), 1)
			b.ReportAllocs()
			for b.Loop() {
				s.Choose(&r, 0)
			}
		})
	}
}

// BenchmarkDo is a whole decision in memory, spread and not.
func BenchmarkDo(b *testing.B) {
	for _, k := range []int{1, 16} {
		b.Run(fmt.Sprint(k), func(b *testing.B) {
			s, _ := over(b)
			r := take("tenant:42", one(algo.FixedWindow(algo.PerMinute(1<<31)), k), 1)
			var d backend.Decision
			b.ReportAllocs()
			for b.Loop() {
				d = backend.Decision{}
				if err := s.Do(b.Context(), &r, &d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestChoosingAllocatesNothing once a key is known; nor does a whole call.
func TestChoosingAllocatesNothing(t *testing.T) {
	s, _ := over(t)
	r := take("tenant:42", one(algo.FixedWindow(algo.PerMinute(1<<31)), 16), 1)
	var sink []backend.Policy
	require.Zero(t, testing.AllocsPerRun(1000, func() { _, sink = s.Choose(&r, 0) }))
	require.NotEmpty(t, sink)
}
