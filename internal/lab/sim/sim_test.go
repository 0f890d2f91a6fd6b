//go:build go1.25

package sim

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

var (
	seed  = flag.Int64("seed", -1, "run this seed and print its trace")
	seeds = flag.Int("seeds", 0, "run so many seeds, on all cores")
	from  = flag.Int64("from", 1, "the first of -seeds")
	fewer = flag.Int("fewer", -1, "only so many of a schedule's faults happen; -1: all")
)

// TestSeed runs one seed: that of -seed.
func TestSeed(t *testing.T) {
	switch {
	case *seed < 0:
		t.Skip("without -seed")
	case os.Getenv(Child) == "":
		out, failed := runSeed(*seed, *fewer, testing.Verbose())
		fmt.Print(out)
		if failed {
			t.FailNow()
		}
		return
	}
	Begun()
	fixSecrets(t, uint64(*seed))
	plan := NewPlan(uint64(*seed))
	plan.Fewer = *fewer
	var w *World
	synctest.Test(t, func(t *testing.T) { w = Run(plan) })
	h := sha256.New()
	for _, l := range w.traces() {
		fmt.Fprintln(h, l.at, l.who, l.what)
		if testing.Verbose() {
			fmt.Println(l.at-w.start.UnixNano(), l.who, l.what)
		}
	}
	for _, err := range w.failures {
		fmt.Println("FAILED:", err)
	}
	fmt.Printf("seed %d: %d decisions, trace %x\n", *seed, w.decisions(), h.Sum(nil)[:8])
	if len(w.failures) > 0 {
		t.FailNow()
	}
}

// runSeed runs a seed in a process of its own, and returns what that printed.
func runSeed(seed int64, fewer int, verbose bool) (out string, failed bool) {
	args := []string{"-test.run=^TestSeed$", "-seed=" + fmt.Sprint(seed), "-fewer=" + fmt.Sprint(fewer), "-test.v=" + strconv.FormatBool(verbose)}
	out, err := Execute(uint64(seed), args...)
	return out, err != nil
}

// TestSeeds runs seeds without faults, each twice: the second trace is the first one. With
// -seeds it runs that many, with faults.
func TestSeeds(t *testing.T) {
	switch {
	case *seed >= 0 || os.Getenv(Child) != "":
		t.Skip("with -seed")
	case raced:
		t.Skip("make test runs it without the race detector")
	case *seeds > 0:
		many(*seeds, func(i int) {
			if out, failed := runSeed(*from+int64(i), *fewer, false); failed {
				t.Errorf("seed %d:\n%s", *from+int64(i), out)
			}
		})
		return
	}
	calm := []int64{1, 2, 3, 5, 7}
	many(len(calm), func(i int) {
		first, failed := runSeed(calm[i], 0, false)
		if failed {
			t.Errorf("seed %d:\n%s", calm[i], first)
		}
		if second, _ := runSeed(calm[i], 0, false); summary(second) != summary(first) {
			t.Errorf("seed %d:\n%s\nand again:\n%s", calm[i], first, second)
		}
	})
}

// summary returns the line that sums up a run.
func summary(out string) string {
	_, line, _ := strings.Cut(out, "seed ")
	return strings.SplitN(line, "\n", 2)[0]
}

// many calls f with 0 to n-1, on all cores.
func many(n int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range next {
				f(i)
			}
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}
