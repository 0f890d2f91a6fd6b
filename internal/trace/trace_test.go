package trace

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden trace")

// TestGolden holds the Go rendering to what it answered when the trace was
// written. The twins test can't see both renderings change together; a
// changed trace is a changed promise, and belongs in the changelog.
func TestGolden(t *testing.T) {
	const file = "testdata/steps.golden"
	var b strings.Builder
	s := New(1)
	m := NewModel(s.Now)
	for range 400 {
		r := s.Next()
		a := Ask(context.Background(), m, r)
		fmt.Fprintf(&b, "%d %v %s %s:", s.Now(), r.Op, r.Key, costs(&r.Group))
		for i, e := range a.Each {
			fmt.Fprintf(&b, " %v %d/%d retry %v reset %v;", &r.Policies[i].Algorithm, e.Used, e.Limit, e.RetryAfter, e.ResetAfter)
		}
		fmt.Fprintf(&b, " %v by %s at %d\n", a.Decision.Allowed, a.Decision.Policy, a.Receipt.At)
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	wants, gots := strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")
	for i := range min(len(wants), len(gots)) {
		require.Equal(t, wants[i], gots[i], "step %d", i)
	}
	require.Len(t, gots, len(wants))
}

func costs(g *backend.Group) string {
	var cs []string
	for i := range g.Policies {
		cs = append(cs, fmt.Sprint(g.CostOf(i)))
	}
	return strings.Join(cs, ",")
}
