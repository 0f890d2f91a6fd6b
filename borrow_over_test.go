package headgate_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// overLimit is the limit per second of TestBorrowIsNeverOver.
const overLimit = 4_000

// overAlgorithms are those whose bounds TestBorrowIsNeverOver holds, with the greatest
// number of calls that may lie in a time.
var overAlgorithms = []struct {
	algo.Algorithm
	over   func([]span) int64
	shards int
	beside []algo.Algorithm // of other policies of the list
}{
	{algo.FixedWindow(algo.PerSecond(overLimit)), func(s []span) int64 { return mostInWindow(s, time.Second) - overLimit }, 0, nil},
	{algo.BucketedWindow(algo.PerSecond(overLimit), 10), func(s []span) int64 { return mostTrailing(s, time.Second) - overLimit }, 0, nil},
	{algo.TokenBucket(algo.PerSecond(overLimit), overLimit/10), func(s []span) int64 { return mostAboveRate(s, overLimit) - overLimit/10 }, 0, nil},
	{algo.SlidingWindow(algo.PerSecond(overLimit)), func(s []span) int64 { return mostInWindow(s, time.Second) - overLimit }, 0, nil},
	{algo.Calendar(overLimit, algo.Day(), time.UTC), func(s []span) int64 { return mostInWindow(s, 24*time.Hour) - overLimit }, 0, nil},
	{algo.FixedWindow(algo.PerSecond(overLimit)), func(s []span) int64 { return mostInWindow(s, time.Second) - overLimit }, 4, nil},
	{algo.SlidingLog(algo.PerSecond(overLimit)), func(s []span) int64 { return mostTrailing(s, time.Second) - overLimit }, 0, nil},
	{algo.CompactLog(algo.PerSecond(overLimit)), func(s []span) int64 { return mostTrailing(s, time.Second) - overLimit }, 0, nil},
	{algo.TokenBucket(algo.PerSecond(overLimit*3/4), overLimit/4), func(s []span) int64 { return mostAboveRate(s, overLimit*3/4) - overLimit/4 }, 0, []algo.Algorithm{algo.FixedWindow(algo.PerSecond(overLimit))}},
}

// overRun is how one fleet of TestBorrowIsNeverOver calls.
type overRun struct {
	processes int
	term      time.Duration // of a loan
	load      int           // calls, in percent of the limit; 0: one after the other
	lost      int           // of 100 replies
}

func (r overRun) String() string {
	load := fmt.Sprint("a load of ", r.load, " %")
	if r.load == 0 {
		load = "calls one after the other"
	}
	return fmt.Sprintf("%d processes, borrowed for %v, %s, %d %% of replies lost", r.processes, r.term, load, r.lost)
}

// overRuns are a few fleets, or many where tests run at full length.
func overRuns() (all []overRun) {
	const short, middle, long = 10 * time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond
	if !redistest.Long() {
		return []overRun{{6, short, 300, 3}, {6, middle, 0, 0}, {6, long, 200, 3}}
	}
	for _, processes := range []int{1, 8, 64} {
		for _, term := range []time.Duration{short, middle, long} {
			all = append(all, overRun{processes, term, 0, 0}, overRun{processes, term, 50, 3}, overRun{processes, term, 300, 0}, overRun{processes, term, 300, 3})
		}
	}
	return all
}

// TestBorrowIsNeverOver calls one key per algorithm from several processes, of which some
// are stopped for two terms at any time, and some are killed. Some replies are
// lost. No call is admitted outside of the time between its begin and its answer, so a bound
// is broken if more calls than it allows lie in a time as a whole.
func TestBorrowIsNeverOver(t *testing.T) {
	redistest.Plain(t)
	if n, ok := redistest.Child(); ok {
		overChild(t, n)
		return
	}
	for _, r := range overRuns() {
		for try := 1; !neverOver(t, r); try++ {
			require.Less(t, try, 4, "%v: no call of one algorithm passed", r)
		}
	}
}

// neverOver runs a fleet, and reports whether a call of each algorithm passed. On a busy machine
// a fleet may begin so late that no store decides a call, which shows nothing.
func neverOver(t *testing.T, r overRun) (passed bool) {
	proxy, dir := redistest.NewProxy(t, redistest.Start(t).Addr()), t.TempDir()
	proxy.Set(redistest.Draw(func() redistest.Fault {
		switch n := rand.IntN(200); {
		case n < r.lost:
			return redistest.ResetAfterRequest
		case n < 2*r.lost:
			return redistest.SwallowReply(r.term)
		}
		return redistest.Pass
	}))
	undecided := make([]int, len(overAlgorithms))
	lines := redistest.Processes(t, r.processes, "TestBorrowIsNeverOver", "HEADGATE_OVER="+proxy.Addr(), "HEADGATE_OVER_DIR="+dir,
		"HEADGATE_OVER_T="+r.term.String(), fmt.Sprint("HEADGATE_OVER_N=", r.processes), fmt.Sprint("HEADGATE_OVER_LOAD=", r.load))
	for _, line := range lines {
		for i, n := range strings.Fields(line) {
			some, err := strconv.Atoi(n)
			require.NoError(t, err, line)
			undecided[i] += some
		}
	}
	passed = true
	for i, a := range overAlgorithms {
		spans := readSpans(t, dir, i)
		if len(spans) == 0 {
			t.Logf("%v, %v: no call passed, %d were not decided", r, &a.Algorithm, undecided[i])
			require.Positive(t, undecided[i], "all calls were denied")
			passed = false
			continue
		}
		over := a.over(spans)
		t.Logf("%v, %v: %d calls passed, %d over; %d replies lost", r, &a.Algorithm, len(spans), max(over, 0), proxy.Hit())
		require.LessOrEqual(t, over, int64(0), "%v, %v: of %d calls too many", r, &a.Algorithm, len(spans))
	}
	return passed
}

// span is the begin and the answer of a call that passed, in ns of the machine's clock.
type span struct{ Begin, Answer int64 }

func overChild(t *testing.T, n int) {
	term, err := time.ParseDuration(os.Getenv("HEADGATE_OVER_T"))
	require.NoError(t, err)
	server := os.Getenv("HEADGATE_OVER")
	processes, err := strconv.Atoi(os.Getenv("HEADGATE_OVER_N"))
	require.NoError(t, err)
	load, err := strconv.Atoi(os.Getenv("HEADGATE_OVER_LOAD"))
	require.NoError(t, err)
	// 64 processes on two cores are often late: what they are late with is not the question.
	store, err := standalone.Open("redis://"+server, &standalone.Options{Budget: 2 * time.Second})
	require.NoError(t, err)
	var limiters []*headgate.Limiter
	for _, a := range overAlgorithms {
		list := []headgate.Policy{{Name: "api", Algorithm: a.Algorithm, OnFailure: headgate.FailClosed}}
		for _, b := range a.beside { // whose part of a loan ends with each window
			list = append(list, headgate.Policy{Name: "beside", Algorithm: b, OnFailure: headgate.FailClosed})
		}
		l, err := headgate.New(store, list, &headgate.Options{Borrow: term, Shards: a.shards})
		require.NoError(t, err)
		limiters = append(limiters, l)
	}
	redistest.Ready()
	spans, undecided := make([][]span, len(limiters)), make([]int, len(limiters))
	var wait sync.WaitGroup
	end := time.Now().Add(time.Duration(redistest.Steps(1500, 5_000)) * time.Millisecond)
	dies := n%3 == 2
	if dies {
		end = end.Add(-time.Duration(rand.IntN(1000)) * time.Millisecond)
	}
	for i, l := range limiters {
		wait.Add(1)
		go func() {
			defer wait.Done()
			next := time.Now()
			for time.Now().Before(end) {
				begin := time.Now().UnixNano()
				d, err := l.Allow(context.Background(), fmt.Sprint("key ", i))
				if err == nil && d.Allowed {
					spans[i] = append(spans[i], span{begin, time.Now().UnixNano()})
				}
				if err != nil || d.Err != nil {
					undecided[i]++
				}
				switch {
				case load > 0:
					next = next.Add(time.Duration(rand.ExpFloat64() * 1e11 / overLimit * float64(processes) / float64(load)))
					time.Sleep(time.Until(next))
				case err == nil && !d.Allowed: // a load of about twice the limit
					time.Sleep(time.Duration(processes) * time.Millisecond / 8)
				case n%4 == 1: // a slow caller: what it holds is given back
					time.Sleep(time.Millisecond)
				}
			}
		}()
	}
	for n%3 == 1 && time.Now().Before(end) { // it stops itself, and another process wakes it
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		pause := fmt.Sprintf("kill -STOP %d; sleep %f; kill -CONT %d", os.Getpid(), 2*term.Seconds(), os.Getpid())
		require.NoError(t, exec.Command("sh", "-c", pause).Run())
	}
	wait.Wait()
	for i := range spans {
		var b bytes.Buffer
		require.NoError(t, binary.Write(&b, binary.LittleEndian, spans[i]))
		require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("HEADGATE_OVER_DIR"), fmt.Sprint(i, ".", n)), b.Bytes(), 0o600))
	}
	redistest.Result("%s", strings.Trim(fmt.Sprint(undecided), "[]"))
	if dies {
		redistest.Die()
	}
}

func readSpans(t *testing.T, dir string, i int) (all []span) {
	files, err := filepath.Glob(filepath.Join(dir, fmt.Sprint(i, ".*")))
	require.NoError(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		some := make([]span, len(b)/16)
		require.NoError(t, binary.Read(bytes.NewReader(b), binary.LittleEndian, some))
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b span) int { return int(a.Answer - b.Answer) })
	return all
}

// mostInWindow returns the most calls that lie in a window of the clock.
func mostInWindow(spans []span, window time.Duration) (most int64) {
	in := map[int64]int64{}
	for _, s := range spans {
		if w := s.Begin / int64(window); w == s.Answer/int64(window) {
			in[w]++
			most = max(most, in[w])
		}
	}
	return most
}

// mostTrailing returns the most calls that lie in a trailing window: that began after an
// answer less the window, and were answered by then.
func mostTrailing(spans []span, window time.Duration) (most int64) {
	t := newTree(spans)
	for _, s := range spans {
		t.add(s.Begin, 1)
		most = max(most, t.calls-t.before(s.Answer-int64(window)))
	}
	return most
}

// mostAboveRate returns the most by which the calls that lie in a time pass a rate.
func mostAboveRate(spans []span, rate int64) (most int64) {
	begins := newTree(spans).begins
	excess := make([]float64, 4*len(begins)) // a segment tree of the most, by begin
	add := make([]float64, 4*len(begins))
	var build, raise func(i, lo, hi, to int)
	build = func(i, lo, hi, _ int) {
		if hi-lo == 1 {
			excess[i] = float64(begins[lo]-begins[0]) / 1e9 * float64(rate)
			return
		}
		mid := (lo + hi) / 2
		build(2*i+1, lo, mid, 0)
		build(2*i+2, mid, hi, 0)
		excess[i] = max(excess[2*i+1], excess[2*i+2])
	}
	raise = func(i, lo, hi, to int) { // all that begin at to or before
		if hi <= to+1 {
			excess[i]++
			add[i]++
			return
		}
		mid := (lo + hi) / 2
		raise(2*i+1, lo, mid, to)
		if to >= mid {
			raise(2*i+2, mid, hi, to)
		}
		excess[i] = max(excess[2*i+1], excess[2*i+2]) + add[i]
	}
	build(0, 0, len(begins), 0)
	// A begin that comes later has a greater excess with no call in it: it is not asked
	// for before it has one.
	worst := 0.0
	for k, s := range spans {
		at, _ := slices.BinarySearch(begins, s.Begin)
		raise(0, 0, len(begins), at)
		if k%8 == 0 || k == len(spans)-1 {
			worst = max(worst, maxUpTo(excess, add, begins, s.Answer)-float64(s.Answer-begins[0])/1e9*float64(rate))
		}
	}
	return int64(worst)
}

// maxUpTo returns the most of the tree among begins up to an instant.
func maxUpTo(excess, add []float64, begins []int64, to int64) float64 {
	last, _ := slices.BinarySearch(begins, to+1)
	var ask func(i, lo, hi int) float64
	ask = func(i, lo, hi int) float64 {
		if hi <= last {
			return excess[i]
		}
		mid := (lo + hi) / 2
		m := ask(2*i+1, lo, mid)
		if mid < last {
			m = max(m, ask(2*i+2, mid, hi))
		}
		return m + add[i]
	}
	return ask(0, 0, len(begins))
}

// tree counts calls by their begins (Fenwick 1994).
type tree struct {
	begins []int64
	counts []int64
	calls  int64
}

func newTree(spans []span) *tree {
	t := &tree{}
	for _, s := range spans {
		t.begins = append(t.begins, s.Begin)
	}
	slices.Sort(t.begins)
	t.begins = slices.Compact(t.begins)
	t.counts = make([]int64, len(t.begins)+1)
	return t
}

func (t *tree) add(begin, n int64) {
	t.calls += n
	i, _ := slices.BinarySearch(t.begins, begin)
	for i++; i < len(t.counts); i += i & -i {
		t.counts[i] += n
	}
}

// before returns how many began at an instant or before.
func (t *tree) before(at int64) (n int64) {
	i, _ := slices.BinarySearch(t.begins, at+1)
	for ; i > 0; i -= i & -i {
		n += t.counts[i]
	}
	return n
}
