package trace

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
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
			fmt.Fprintf(&b, " %v %d/%d retry %v reset %v delay %v;", &r.Policies[i].Algorithm, e.Used, e.Limit, e.RetryAfter, e.ResetAfter, e.Delay)
		}
		fmt.Fprintf(&b, " %v by %s\n", a.Decision.Allowed, a.Decision.Policy)
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

// TestNoLevelOutlivesItsStore: a store may forget a level of a bucket an hour after it
// has drained, and a slower bucket of the same name would still see it in the model.
func TestNoLevelOutlivesItsStore(t *testing.T) {
	for seed := range uint64(2_000) {
		s := New(seed)
		for _, a := range s.buckets() {
			for _, b := range s.buckets() {
				if a.Name != b.Name || rate(&a.Algorithm) <= rate(&b.Algorithm) {
					continue
				}
				drained := time.Duration(float64(a.Algorithm.Max()) / rate(&b.Algorithm) * float64(time.Second))
				require.LessOrEqual(t, drained, 10*time.Minute, "-seed %d: %v, then %v", seed, &a.Algorithm, &b.Algorithm)
			}
		}
	}
}

// buckets are the policies of the present era that have a TokenBucket.
func (s *Steps) buckets() []backend.Policy {
	return slices.DeleteFunc(slices.Concat(s.lists...), func(p backend.Policy) bool {
		return p.Algorithm.Kind() != rule.KindTokenBucket
	})
}

func costs(g *backend.Group) string {
	var cs []string
	for i := range g.Policies {
		cs = append(cs, fmt.Sprint(g.CostOf(i)))
	}
	return strings.Join(cs, ",")
}
