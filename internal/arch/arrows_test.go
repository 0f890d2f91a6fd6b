package arch

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// arrows counts what leads from one node of a graph to another.
type arrows map[string]map[string]int

func (a arrows) add(from, to string) {
	for _, n := range []string{from, to} {
		if a[n] == nil {
			a[n] = map[string]int{}
		}
	}
	if from != to {
		a[from][to]++
	}
}

func (a arrows) count() (n int) {
	for _, out := range a {
		for _, k := range out {
			n += k
		}
	}
	return n
}

// circles returns the sets of two or more nodes that all lead to each other.
func (a arrows) circles() (all [][]string) {
	reach := map[string]map[string]bool{}
	for n := range a {
		seen, open := map[string]bool{}, []string{n}
		for len(open) > 0 {
			next := open[len(open)-1]
			open = open[:len(open)-1]
			for to := range a[next] {
				if !seen[to] {
					seen[to] = true
					open = append(open, to)
				}
			}
		}
		reach[n] = seen
	}
	done := map[string]bool{}
	for _, n := range slices.Sorted(maps.Keys(a)) {
		if done[n] || !reach[n][n] {
			continue
		}
		circle := []string{}
		for m := range a {
			if reach[n][m] && reach[m][n] {
				done[m], circle = true, append(circle, m)
			}
		}
		all = append(all, circle)
	}
	return all
}

// circle returns the number of nodes in the largest circle.
func (a arrows) circle() (n int) {
	for _, c := range a.circles() {
		n = max(n, len(c))
	}
	return n
}

// back returns the least number of arrows that lead to an earlier node, over all orders
// of the nodes. It tries every set of nodes of a circle as those that come first.
func (a arrows) back() (n int) {
	for _, circle := range a.circles() {
		least := make([]int, 1<<len(circle))
		for set := 1; set < len(least); set++ {
			least[set] = 1 << 30
			for rest := set; rest != 0; rest &= rest - 1 {
				last := bits.TrailingZeros(uint(rest))
				before, up := set&^(1<<last), 0
				for i, node := range circle {
					if before&(1<<i) != 0 {
						up += a[circle[last]][node]
					}
				}
				least[set] = min(least[set], least[before]+up)
			}
		}
		n += least[len(least)-1]
	}
	return n
}

// fileArrows returns which file of the root uses names of which other one, one arrow
// per pair.
func fileArrows(t *testing.T) arrows {
	t.Helper()
	exports := map[string]string{}
	for line := range strings.Lines(goList(t, "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".")) {
		if f := strings.Fields(line); len(f) == 2 {
			exports[f[0]] = f[1]
		}
	}
	set := token.NewFileSet()
	var files []*ast.File
	paths, err := filepath.Glob(filepath.Join(root, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if !strings.HasSuffix(path, "_test.go") {
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})}
	pkg, err := config.Check(module, set, files, info)
	if err != nil {
		t.Fatal(err)
	}
	name := func(p token.Pos) string { return filepath.Base(set.Position(p).Filename) }
	pairs := arrows{}
	for id, object := range info.Uses {
		if from, to := name(id.Pos()), name(object.Pos()); object.Pkg() == pkg && pairs[from][to] == 0 {
			pairs.add(from, to)
		}
	}
	return pairs
}

// TestArrows: the least number of arrows back is that of the best order.
func TestArrows(t *testing.T) {
	a := arrows{}
	for _, edge := range []string{"ab", "bc", "ca", "ca", "cd", "de", "ed", "ff"} {
		a.add(edge[:1], edge[1:])
	}
	if n, back, circle := a.count(), a.back(), a.circle(); n != 7 || back != 2 || circle != 3 {
		t.Errorf("%d arrows, %d back, %d in a circle; want 7, 2 and 3", n, back, circle)
	}
}
