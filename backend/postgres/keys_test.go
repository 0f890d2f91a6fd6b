package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/stretchr/testify/require"
)

// TestKeys: all keys that something is counted of are listed once, in the order of their bytes, on
// several pages. Of a long one only a hash is stored.
func TestKeys(t *testing.T) {
	s, ctx := open(t, postgres.Options{}), context.Background()
	var want []string
	long := strings.Repeat("x", 300)
	rs := []backend.Request{{Op: backend.Take, Group: backend.Group{Key: long, Policies: daily(1), Cost: 1}}}
	for i := range 2345 {
		want = append(want, fmt.Sprintf("a\x00%05d\xff", i))
	}
	want = append(want, "b", "b\x00", "user:42", strings.Repeat("y", 255))
	for _, key := range want {
		rs = append(rs, backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: daily(1), Cost: 1}})
	}
	answers := make([]backend.Answer, len(rs))
	s.DoAll(ctx, rs, answers)
	for _, a := range answers {
		require.NoError(t, a.Err)
	}
	listed := func(prefix string) (keys, names []string) {
		for k, err := range s.Keys(ctx, prefix) {
			require.NoError(t, err)
			keys, names = append(keys, k.Key), append(names, k.Name)
		}
		return keys, names
	}
	keys, names := listed("")
	require.Equal(t, append(append([]string{}, want[:len(want)-1]...), "", want[len(want)-1]), keys)
	require.Equal(t, "757365723a3432", names[len(want)-2])
	keys, _ = listed("user:")
	require.Equal(t, []string{"user:42"}, keys)
	keys, _ = listed("x") // of the long one nobody knows how it goes on
	require.Empty(t, keys)
	keys, _ = listed("a")
	require.Equal(t, want[:2345], keys)
	for range s.Keys(ctx, "") {
		break
	}
	at := time.Now().Add(-48 * time.Hour).UnixMicro()
	s.SetClock(func() int64 { return at })
	_, err := ask(s, backend.Take, "expired", daily(1))
	require.NoError(t, err)
	keys, _ = listed("expired")
	require.Empty(t, keys)
	for _, err := range postgres.New(nil, nil).Keys(ctx, "") {
		require.ErrorAs(t, err, new(*backend.InvalidError))
	}
}
