package load

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

func TestQuantileIsTheNearestRank(t *testing.T) {
	waits := make([]time.Duration, 1000)
	for i := range waits {
		waits[i] = time.Duration(1000 - i) // unsorted on purpose
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.0004: 1, 0.5: 500, 0.5001: 501, 0.99: 990, 0.999: 999, 1: 1000} {
		if got := Quantile(slices.Clone(waits), q); got != want {
			t.Errorf("quantile %v of 1 to 1000 is %d, want %d", q, got, want)
		}
	}
	if got := Quantile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
}

func TestArrivalsArePoisson(t *testing.T) {
	const rate, seconds = 20_000, 5
	all := Arrivals(rate, seconds*time.Second, 7)
	// The number has a deviation of sqrt(n): five of them are 1 in 2 million.
	if n, want := float64(len(all)), float64(rate*seconds); math.Abs(n-want) > 5*math.Sqrt(want) {
		t.Errorf("%v arrivals, want about %v", n, want)
	}
	if !slices.IsSorted(all) || all[len(all)-1] >= seconds*time.Second {
		t.Error("not in order, or beyond the end")
	}
	var sum, squares float64
	for i := 1; i < len(all); i++ {
		gap := (all[i] - all[i-1]).Seconds() * rate
		sum += gap
		squares += gap * gap
	}
	n := float64(len(all) - 1)
	mean := sum / n
	variance := squares/n - mean*mean
	// Of exponential gaps the deviation is the mean; even ones would have none.
	if math.Abs(mean-1) > 0.02 || math.Abs(variance-1) > 0.05 {
		t.Errorf("gaps have mean %.3f and variance %.3f, want 1 and 1", mean, variance)
	}
	if !slices.Equal(all, Arrivals(rate, seconds*time.Second, 7)) {
		t.Error("the same seed gave other arrivals")
	}
}

func TestZipfFallsAsItShould(t *testing.T) {
	count := draws(Zipf("k", 1000, 1.1))
	// math/rand draws in proportion to (1 + k)^-s from k = 0 on.
	if got, want := float64(count["k0"])/float64(count["k9"]), math.Pow(10, 1.1); math.Abs(got/want-1) > 0.1 {
		t.Errorf("the first key is called %.1f times as often as the tenth, want %.1f", got, want)
	}
}

func TestUniformReachesAllAlike(t *testing.T) {
	count := draws(Uniform("k", 100))
	for _, name := range Uniform("k", 100).Names() {
		if got := float64(count[name]) / (1 << 16) * 100; math.Abs(got-1) > 0.25 {
			t.Errorf("%s is called %.2f times its share", name, got)
		}
	}
}

func draws(k Keys) map[string]int {
	count := map[string]int{}
	w := k.walk(0, 1)
	for range k.order {
		count[w.next()]++
	}
	return count
}

func TestClosedCountsEveryCall(t *testing.T) {
	var calls [3]atomic.Int64
	var between [3]int64
	s := Closed{Callers: 8, For: 20 * time.Millisecond, Time: true, Between: func() {
		for i := range between {
			between[i] = calls[i].Load()
		}
	}}.Run(Uniform("k", 10), func(context.Context, string) Answer {
		a := Answer(time.Now().UnixNano() / 100 % 3)
		calls[a].Add(1)
		return a
	})
	for a := range s.Count {
		if want := calls[a].Load() - between[a]; s.Count[a] != want {
			t.Errorf("answer %d: counted %d of %d", a, s.Count[a], want)
		}
	}
	all := s.Count[0] + s.Count[1] + s.Count[2]
	if n := int64(len(s.Waits)); n != all {
		t.Errorf("%d of %d calls timed", n, all)
	}
}

func TestHarnessAllocatesNothingACall(t *testing.T) {
	s := Closed{Callers: 64, For: 50 * time.Millisecond}.Run(Hot("k"), func(context.Context, string) Answer {
		runtime.Gosched()
		return Passed
	})
	if per := float64(s.Mallocs) / s.Decisions(); per > 0.02 {
		t.Errorf("%.3f allocations a call of nothing, want next to none", per)
	}
}

func TestOpenCountsFromTheArrival(t *testing.T) {
	// A subject that serves one at a time and takes 2 ms: at 1,000 arrivals a
	// second all wait for those before them. A closed loop would not see it.
	var busy = make(chan struct{}, 1)
	s := Open{Rate: 1000, For: 100 * time.Millisecond, Seed: 1}.Run(Hot("k"), func(context.Context, string) Answer {
		busy <- struct{}{}
		time.Sleep(2 * time.Millisecond)
		<-busy
		return Passed
	})
	if worst := Quantile(s.Waits, 1); worst < 40*time.Millisecond {
		t.Errorf("the longest wait is %v, in a queue that grows to 100 ms", worst)
	}
	if len(s.Waits) != int(s.Count[Passed]) {
		t.Errorf("%d waits of %d calls", len(s.Waits), s.Count[Passed])
	}
}

func TestFillAsksForEveryKeyUntilItIsDecided(t *testing.T) {
	var asked [100]atomic.Int64
	keys := Uniform("", len(asked))
	at := map[string]int{}
	for i, name := range keys.Names() {
		at[name] = i
	}
	err := Fill(3, keys, func(_ context.Context, key string) Answer {
		if asked[at[key]].Add(1) < 2 {
			return Failed
		}
		return Passed
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range asked {
		if n := asked[i].Load(); n != 2 {
			t.Errorf("key %d was asked for %d times", i, n)
		}
	}
}

func TestAlarmIsNeverEarly(t *testing.T) {
	bell := newAlarm()
	defer bell.close()
	for _, d := range []time.Duration{-time.Second, 0, 1, 50 * time.Microsecond, 3 * time.Millisecond} {
		due := time.Now().Add(d)
		bell.until(due)
		if early := time.Until(due); early > 0 {
			t.Errorf("%v early", early)
		}
	}
}
