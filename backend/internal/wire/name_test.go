package wire_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/wire"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestTags: whatever bytes a key and a sub-key's name hold, no two lists of
// them share a tag, and no tag holds a brace.
func TestTags(t *testing.T) {
	keys := []string{"a", "user:42", "{x}", "x}", "{", "~", "~a", "a~b", "a b", "\x00", "é", "\xff", strings.Repeat("a", 64), strings.Repeat("a", 65),
		wire.Tag("{x}", ""), wire.Tag(wire.Tag("{x}", ""), ""), "~s1.0~user:42", "headgate:{user:42}"}
	seen := map[string]string{}
	for _, k := range keys {
		for _, sub := range []string{"", "s1.0", "s1.1"} {
			tag := wire.Tag(k, sub)
			from := fmt.Sprintf("%q %q", k, sub)
			require.Empty(t, seen[tag], "%s and %s share %s", from, seen[tag], tag)
			seen[tag] = from
			require.NotContains(t, tag, "{")
			require.NotContains(t, tag, "}")
			require.LessOrEqual(t, len(tag), 64+len(sub)+2)
		}
	}
	require.Equal(t, "user:42", wire.Tag("user:42", ""), "a plain key can be found by eye")
}

func TestPrefixes(t *testing.T) {
	require.NoError(t, wire.Prefix("svc:rate_limit:").Check())
	for _, p := range []string{"a{", "}", "a b", "\n", "é", strings.Repeat("x", 129)} {
		require.Error(t, wire.Prefix(p).Check(), "%q", p)
	}
}

// TestExpiryOnlyGrows: a short policy does not cut the life of a long one
// that lies under the same key.
func TestExpiryOnlyGrows(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	runner := wire.Alone(client, &layer.Shared{}, time.Second)
	long := []backend.Policy{{Name: "long", Algorithm: algo.FixedWindow(algo.PerDay(5))}}
	short := []backend.Policy{{Name: "short", Algorithm: algo.FixedWindow(algo.Per(1000, time.Millisecond))}}
	require.NoError(t, runner.Run(ctx, []*wire.Asked{group("k", 1, long)}))
	for range 5 {
		require.NoError(t, runner.Run(ctx, []*wire.Asked{group("k", 1, short)}))
	}
	require.Greater(t, client.PTTL(ctx, wire.DefaultPrefix.Hash("k")).Val(), 2*time.Hour)

	// And the other way round, nothing that counts outlives its key.
	require.NoError(t, runner.Run(ctx, []*wire.Asked{group("j", 1, short)}))
	require.Less(t, client.PTTL(ctx, wire.DefaultPrefix.Hash("j")).Val(), time.Minute)
	require.NoError(t, runner.Run(ctx, []*wire.Asked{group("j", 1, long)}))
	require.Greater(t, client.PTTL(ctx, wire.DefaultPrefix.Hash("j")).Val(), 2*time.Hour)

	// A key that lost its expiry gets one again.
	require.NoError(t, client.Persist(ctx, wire.DefaultPrefix.Hash("j")).Err())
	require.NoError(t, runner.Run(ctx, []*wire.Asked{group("j", 1, []backend.Policy{{Name: "third", Algorithm: algo.SlidingWindow(algo.PerMinute(5))}})}))
	require.Positive(t, client.PTTL(ctx, wire.DefaultPrefix.Hash("j")).Val())
}
