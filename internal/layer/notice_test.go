package layer_test

import (
	"testing"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestPassedAlternative: of alternatives only the one that was charged is reported to have passed.
func TestPassedAlternative(t *testing.T) {
	var s layer.Shared
	var passed []string
	s.Subscribe(func(n layer.Notice) { passed = append(passed, n.Group.Key) })
	r := backend.Request{Op: backend.Take, Group: backend.Group{Key: "a"}, And: []backend.Group{{Key: "b", Else: true}, {Key: "c"}, {Key: "d", Else: true}}}
	s.Sent(&r, &backend.Decision{Allowed: true, At: 2}, 0, nil)
	require.Equal(t, []string{"b", "c"}, passed)
}
