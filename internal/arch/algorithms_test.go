package arch

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/lua"
)

// placesMax is how many files, beside its own two and tests, may name an algorithm.
const placesMax = 3

// morePlaces are the algorithms that need more.
var morePlaces = map[string]int{
	"tokenbucket": 5, // a known denial foretells its level, and a LeakyQueue keeps what it keeps
	"slidinglog":  4, // Ping reads one, and a single reservation of one has a short path
	"inflight":    6, // its slots are freed by settles, and after a reset too
}

// TestPlaces: a new algorithm is one Go file, one Lua file and a line in the list of
// each language. Whatever else names an algorithm is a place that the next one may
// need too.
func TestPlaces(t *testing.T) {
	all := sources(t)
	for _, k := range lua.Kinds() {
		places := slices.Concat(goPlaces(all, k), luaPlaces(t, k))
		t.Logf("%s: %s", k.File, strings.Join(places, ", "))
		if most := max(placesMax, morePlaces[k.File]); len(places) > most {
			t.Errorf("%s is named in %d files beside its own, at most %d are allowed", k.File, len(places), most)
		}
	}
}

// goPlaces returns the files of the library that have an identifier of the algorithm:
// its function, its number or its rule. What is built for tests is left out.
func goPlaces(all []source, k lua.Kind) (places []string) {
	for _, s := range all {
		if !library(s.pkg) || s.path == "algo/rule/"+k.File+".go" {
			continue
		}
		named := false
		ast.Inspect(s.file, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			named = named || ok && strings.EqualFold(strings.TrimPrefix(id.Name, "Kind"), k.File)
			return !named
		})
		if named {
			places = append(places, s.path)
		}
	}
	return places
}

func library(pkg string) bool {
	return slices.ContainsFunc([]string{".", "algo/rule", "backend", "backend/memory", "backend/standalone", "backend/cluster", "borrow", "breaker", "shard",
		"internal/layer", "internal/denial", "internal/wait"}, func(p string) bool { return p == pkg }) || strings.HasPrefix(pkg, "backend/internal/")
}

// luaPlaces returns the Lua files that compare with the algorithm's number, list it or
// include a section of its file.
func luaPlaces(t *testing.T, k lua.Kind) (places []string) {
	names := regexp.MustCompile(fmt.Sprintf(`(kind|\[1\]) [=~]= %d\b|--@kind %d |--@include %s\.`, k.Wire, k.Wire, k.File))
	files, err := filepath.Glob(root + "/lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatalf("no Lua files: %v", err)
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if base := filepath.Base(f); base != k.File+".lua" && names.Match(src) {
			places = append(places, "lua/"+base)
		}
	}
	return places
}
