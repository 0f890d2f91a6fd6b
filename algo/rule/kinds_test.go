package rule_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/lua"
	"github.com/stretchr/testify/require"
)

// TestKinds: each kind has a number, a wire kind and a mark of its own, and a
// twin under the same base name.
func TestKinds(t *testing.T) {
	wires, marks := map[int]string{}, map[string]rule.Kind{}
	for _, k := range lua.Kinds() {
		require.NotContains(t, wires, k.Wire)
		wires[k.Wire] = k.File
	}
	for _, k := range append(rule.Kinds(), rule.KindInFlight) {
		require.Equal(t, strings.ToLower(k.String()), wires[int(k.Wire())], "the twin of %v", k)
		require.FileExists(t, filepath.Join(".", strings.ToLower(k.String())+".go"))
		require.NotEmpty(t, k.Mark(), "%v", k)
		for mark, other := range marks {
			require.False(t, strings.HasPrefix(mark, k.Mark()) || strings.HasPrefix(k.Mark(), mark), "%v and %v", k, other)
		}
		marks[k.Mark()] = k
		require.Equal(t, k.Storage() == rule.StoredWords, k.Words() > 0, "%v", k)
		require.LessOrEqual(t, k.Words(), 3, "%v", k)
		delete(wires, int(k.Wire()))
	}
	require.Empty(t, wires)
	for _, k := range []rule.Kind{0, 15, 255} {
		require.Zero(t, k.Storage())
		require.NotEmpty(t, k.String())
	}
}

// TestRandom: what a kind draws is sound, of that kind, and keeps its count under
// another limit.
func TestRandom(t *testing.T) {
	for _, k := range rule.Kinds() {
		for _, most := range []bool{false, true} {
			a := k.Random(rule.PerMinute(k.MaxLimit()), func(least, greatest int64) int64 {
				if most {
					return greatest
				}
				return least
			})
			require.NoError(t, a.Check())
			require.Equal(t, k, a.Kind())
			b := a.WithMax(7)
			require.EqualValues(t, 7, b.Max())
			require.Equal(t, a.Identity(), b.Identity())
			wide := rule.Widest(a.Identity())
			require.Equal(t, a.Identity(), wide.Identity())
			require.NoError(t, wide.Check())
			above := a.WithMax(k.MaxLimit() + 1)
			require.Error(t, above.Check())
		}
	}
}

// TestZeroAlgorithmAnswers: whoever asks an Algorithm that nobody made gets no
// panic, and no call passes.
func TestZeroAlgorithmAnswers(t *testing.T) {
	var a rule.Algorithm
	v := a.View(make([]int64, a.Words()), 1)
	require.False(t, a.Fits(&v, 1))
	require.Positive(t, a.RetryAt(nil, &v, 1))
	a.Take(nil, &v, 1)
	require.Zero(t, a.Identity())
	for _, b := range []rule.Algorithm{a.Part(0, 2), a.Share(1, 2), a.WithMax(3)} {
		require.Error(t, b.Check())
		require.Zero(t, b.Max())
	}
	require.Zero(t, a.Worst(time.Second))
}

// TestNoOrder: what a kind is stands in its rule, not in its number's place.
func TestNoOrder(t *testing.T) {
	files, err := filepath.Glob("../*/*.go")
	require.NoError(t, err)
	for _, f := range files {
		src, err := os.ReadFile(f)
		require.NoError(t, err)
		require.NotRegexp(t, `(<|>)=? *(algo\.)?Kind[A-Z]`, string(src), f)
	}
}
