package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	meta := map[any]any{"hostname": "a"}
	slots, err := parse([]any{
		[]any{int64(0), int64(99), []any{"::1", int64(7000), "id", meta}, []any{nil, int64(7001), "id", meta}},
		[]any{int64(100), int64(16383), []any{"?", int64(7002), "id", map[any]any{"ip": "10.0.0.1"}},
			[]any{"?", int64(7003), "id", []any{"ip", "10.0.0.2"}}, []any{"?", int64(7004), "id"}},
	})
	require.NoError(t, err)
	require.Equal(t, 99, slots[0].End)
	require.Equal(t, "[::1]:7000", slots[0].Nodes[0].Addr)
	require.Equal(t, "id", slots[0].Nodes[0].ID)
	require.Equal(t, ":7001", slots[0].Nodes[1].Addr)
	require.Equal(t, 100, slots[1].Start)
	require.Equal(t, "10.0.0.1:7002", slots[1].Nodes[0].Addr)
	require.Equal(t, "10.0.0.2:7003", slots[1].Nodes[1].Addr)
	require.Equal(t, "?:7004", slots[1].Nodes[2].Addr)

	node := []any{"a", int64(1)}
	for _, r := range []any{
		nil, "slots", []any{}, []any{int64(0), int64(1)}, []any{"0", int64(1), node}, []any{int64(0), "1", node},
		[]any{int64(-1), int64(1), node}, []any{int64(2), int64(1), node},
		[]any{int64(0), int64(1), "node"}, []any{int64(0), int64(1), []any{"a"}}, []any{int64(0), int64(1), []any{"a", "1"}},
	} {
		_, err := parse([]any{r})
		require.ErrorIs(t, err, errSlots, "%v", r)
	}
	_, err = parse(nil)
	require.ErrorIs(t, err, errEmpty)
}

func TestAnnounced(t *testing.T) {
	for _, c := range [][3]string{
		{"10.0.0.1:7000", "b:6379", "10.0.0.1:7000"},
		{"fe80::1:7000", "b:6379", "[fe80::1]:7000"},
		{"[fe80::1]:7000", "b:6379", "[fe80::1]:7000"},
		{":7000", "b:6379", "b:7000"},
		{":7000", "[::1]:6379", "[::1]:7000"},
		{":7000", "", ":7000"}, // the user's ClusterSlots
		{"nonsense", "b:6379", "nonsense"},
	} {
		require.Equal(t, c[2], announced(c[0], c[1]), "%q from %q", c[0], c[1])
	}
}
