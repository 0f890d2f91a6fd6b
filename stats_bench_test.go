package headgate_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// BenchmarkMemoryCall is a call of the memory store that passes, and one that is denied: of a few
// keys, and of more keys than the sketch of denied keys has places for.
func BenchmarkMemoryCall(b *testing.B) {
	for _, c := range []struct {
		name  string
		limit int64
		keys  int
	}{{"passes", 1e15 - 1, 4}, {"denied", 1, 4}, {"denied-of-many", 1, 1 << 14}} {
		b.Run(c.name, func(b *testing.B) {
			l, err := headgate.New(memory.New(nil), []headgate.Policy{{
				Name: "api", Algorithm: algo.FixedWindow(algo.PerDay(c.limit)), OnFailure: headgate.FailOpen,
			}}, nil)
			require.NoError(b, err)
			keys := make([]string, c.keys)
			for i := range keys {
				keys[i] = fmt.Sprint("user:", 100_000+i)
				_, err := l.Allow(context.Background(), keys[i])
				require.NoError(b, err)
			}
			b.ResetTimer()
			for i := range b.N {
				if _, err := l.Allow(context.Background(), keys[i&(c.keys-1)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
