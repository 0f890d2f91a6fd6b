package headgate_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestAListForEachCall: With and the first call of its limiter, on a spread key, take at most
// 10 µs more than a sum of its sub-keys and a call, over lists that differ. A busy machine gets
// four times that, and five times as much again under the race detector.
func TestAListForEachCall(t *testing.T) {
	lists := redistest.Steps(1000, 10_000)
	most := time.Duration(redistest.Steps(40, 10)) * time.Microsecond
	if redistest.Raced {
		most *= 5
	}
	p := perMinute
	lay := func(i int) headgate.Policy {
		p.Algorithm = algo.FixedWindow(algo.Per(int64(1_000_000+i), algo.MaxPeriod))
		return p
	}
	for name, key := range map[string]func(i int) string{
		"one key":  func(int) string { return "tenant" },
		"own keys": func(i int) string { return fmt.Sprint("tenant:", i) },
	} {
		keys := make([]string, lists)
		for i := range keys {
			keys[i] = key(i)
		}
		var more []time.Duration
		for n := 0; n < redistest.Steps(20, 7) && (n == 0 || slices.Min(more) > most); n++ { // stalls only add
			l, err := headgate.New(memory.New(nil), []headgate.Policy{lay(0)}, &headgate.Options{Shards: 16})
			require.NoError(t, err)
			ctx := context.Background()
			begin := time.Now()
			for i := range lists {
				if d, err := l.Peek(ctx, headgate.Call{Key: keys[i]}); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				if d, err := l.Allow(ctx, keys[i]); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
			}
			plain := time.Since(begin)
			begin = time.Now()
			for i := range lists {
				other, err := l.With(lay(i))
				if err != nil {
					t.Fatal(err)
				}
				if d, err := other.Allow(ctx, keys[i]); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
			}
			more = append(more, (time.Since(begin)-plain)/time.Duration(lists))
			t.Log(name, plain/time.Duration(lists), more[len(more)-1])
		}
		require.LessOrEqual(t, slices.Min(more), most, name)
	}
}
