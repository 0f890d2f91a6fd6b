package policyfile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// version is a file in which every number is n.
func version(n int) string {
	return fmt.Sprintf(`policies:
  a: {algorithm: fixed-window, limit: %[1]d, period: 1h, on-failure: open}
  b: {algorithm: sliding-window, limit: %[1]d, period: 1h, on-failure: open}
  c: {algorithm: token-bucket, limit: %[1]d, burst: %[1]d, period: 1h, on-failure: open}
tenants:
  one: {policies: {a: {limit: %[1]d}}}
  two: {policies: {c: {limit: %[1]d, burst: %[1]d}}}
`, n)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// swaps are the ways in which a file is replaced. Each returns the path that
// is watched, and what puts a text there.
var swaps = map[string]func(t *testing.T) (path string, put func(text string)){
	"in place": func(t *testing.T) (string, func(string)) {
		path := filepath.Join(t.TempDir(), "limits.yaml")
		return path, func(text string) { write(t, path, text) }
	},
	"rename": func(t *testing.T) (string, func(string)) {
		path := filepath.Join(t.TempDir(), "limits.yaml")
		return path, func(text string) {
			write(t, path+".new", text)
			require.NoError(t, os.Rename(path+".new", path))
		}
	},
	// Kubernetes: limits.yaml -> ..data/limits.yaml, and ..data -> a folder per
	// version, which a rename of the link replaces.
	"link": func(t *testing.T) (string, func(string)) {
		dir, n := t.TempDir(), 0
		path := filepath.Join(dir, "limits.yaml")
		require.NoError(t, os.Symlink("..data/limits.yaml", path))
		return path, func(text string) {
			n++
			old, next := filepath.Join(dir, fmt.Sprint(n-1)), filepath.Join(dir, fmt.Sprint(n))
			require.NoError(t, os.Mkdir(next, 0o700))
			write(t, filepath.Join(next, "limits.yaml"), text)
			require.NoError(t, os.Symlink(fmt.Sprint(n), filepath.Join(dir, "..tmp")))
			require.NoError(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
			require.NoError(t, os.RemoveAll(old))
		}
	},
}

// TestSwaps: 200 swaps under 64 callers, 1,000 at full length. Every decision is by one whole list:
// each policy of it has the number of the same version, and so have all
// limiters of one Limiters.
func TestSwaps(t *testing.T) {
	count := 200
	if os.Getenv("HEADGATE_LONG") != "" {
		count = 1000
	}
	for name, swap := range swaps {
		t.Run(name, func(t *testing.T) {
			path, put := swap(t)
			put(version(1))
			w, err := Watch(path, memory.New(nil), &Options{Interval: time.Millisecond / 2})
			require.NoError(t, err)
			defer w.Close()

			var current atomic.Int64 // the newest version that may be in use
			current.Store(1)
			ctx, stop := context.WithCancel(t.Context())
			var callers sync.WaitGroup
			decisions, versions := make([]int, 64), make([]map[int64]bool, 64)
			for i := range 64 {
				callers.Add(1)
				go func() {
					defer callers.Done()
					versions[i] = map[int64]bool{}
					decisions[i] = call(t, ctx, w, versions[i], &current)
				}()
			}
			for n := 2; n <= 1+count; n++ {
				current.Store(int64(n))
				put(version(n))
				require.Eventually(t, func() bool { return w.File().For("").Policies[0].Algorithm.Max() == int64(n) }, time.Minute, 100*time.Microsecond)
			}
			stop()
			callers.Wait()
			sum, seen := 0, map[int64]bool{}
			for i := range decisions {
				sum += decisions[i]
				for v := range versions[i] {
					seen[v] = true
				}
			}
			t.Logf("%s: %d swaps, %d decisions by %d versions, each by one whole list", name, count, sum, len(seen))
			require.Greater(t, len(seen), count/2)
		})
	}
}

// call decides until ctx ends. versions are those that decided.
func call(t *testing.T, ctx context.Context, w *Watcher, versions map[int64]bool, current *atomic.Int64) (decisions int) {
	names := []string{"one", "two", "", "not listed"}
	for ; ctx.Err() == nil; decisions++ {
		all := w.Limiters()
		l := all.For(names[decisions%len(names)])
		policies := l.Policies()
		n := policies[0].Algorithm.Max()
		for _, p := range policies {
			if p.Algorithm.Max() != n {
				t.Errorf("one list with %d and %d", n, p.Algorithm.Max())
				return decisions
			}
		}
		d, err := l.Allow(context.Background(), "key")
		if err != nil || d.Limit != n {
			t.Errorf("limit %d, want %d; %v", d.Limit, n, err)
			return decisions
		}
		if other := all.For("two").Policies()[2].Algorithm.Max(); other != n {
			t.Errorf("one file with %d and %d", n, other)
			return decisions
		}
		if n > current.Load() {
			t.Errorf("version %d before it was written", n)
		}
		versions[n] = true
		time.Sleep(100 * time.Microsecond) // or 64 callers keep the reader from its turn
	}
	return decisions
}

// TestHalfOfAFileDoesNotApply: a valid beginning of a longer file, written in
// place, is seen by one read and not by the next.
func TestHalfOfAFileDoesNotApply(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, version(1))
	w, reports := watch(t, path)
	whole := version(2)
	write(t, path, whole[:len(whole)-len("  two: {policies: {c: {limit: 2, burst: 2}}}\n")])
	w.poll()
	write(t, path, whole)
	w.poll()
	require.Empty(t, *reports)
	require.Equal(t, version(1), string(w.used.data))
	w.poll()
	require.Equal(t, []error{nil}, *reports)
	require.Equal(t, []string{"one", "two"}, w.File().Tenants())
	require.Equal(t, int64(2), w.Limiters().For("two").Policies()[2].Algorithm.Max())
}

func TestFileThatGoesAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, version(1))
	w, reports := watch(t, path)
	before := w.Limiters()
	require.NoError(t, os.Remove(path))
	w.poll()
	write(t, path, version(1))
	w.poll()
	w.poll()
	require.Empty(t, *reports, "gone for a moment, as while an editor writes it")
	require.NoError(t, os.Remove(path))
	w.poll()
	w.poll()
	require.ErrorIs(t, w.Err(), os.ErrNotExist)
	require.Len(t, *reports, 1)
	require.Same(t, before, w.Limiters())
	write(t, path, version(1))
	w.poll()
	w.poll()
	require.NoError(t, w.Err())
	require.Len(t, *reports, 2)
}

// TestSpreadByAReload: a file that spreads what the file in use does not stays out of use, as
// calls that reserve would be refused. A list that is new may be spread.
func TestSpreadByAReload(t *testing.T) {
	const policy = "{algorithm: fixed-window, limit: 90, period: 1h, on-failure: open"
	plain := "policies:\n  a: " + policy + "}\n  b: " + policy + "}\nplans: {x: [a]}\ndefault: x\n"
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, plain)
	w, reports := watch(t, path)
	for _, text := range []string{
		plain + "shards: 3\n",
		plain + "tenants: {one: {shards: 3}}\n",
	} {
		write(t, path, text)
		w.poll()
		w.poll()
		require.ErrorContains(t, w.Err(), "shards")
		require.Zero(t, w.File().For("one").Shards)
	}
	write(t, path, strings.Replace(plain, "default: x", "default: x", 1)+"\n# spread\n")
	w.poll()
	w.poll()
	write(t, path, "policies:\n  a: "+policy+"}\n  b: "+policy+"}\nplans: {x: [a], y: [b]}\ndefault: x\nshards: {y: 3}\n")
	w.poll()
	w.poll()
	require.NoError(t, w.Err())
	require.Len(t, *reports, 4)
}

// TestCloseEndsTheReading: nothing is read after Close, and the limiters stay.
func TestCloseEndsTheReading(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, version(1))
	var reloads atomic.Int64
	w, err := Watch(path, memory.New(nil), &Options{Interval: time.Microsecond, Reloaded: func(error) { reloads.Add(1) }})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	at := reloads.Load()
	write(t, path, version(2))
	require.Equal(t, at, reloads.Load())
	d, err := w.Limiters().For("one").Allow(t.Context(), "key")
	require.NoError(t, err)
	require.True(t, d.Allowed)
}

func BenchmarkFor(b *testing.B) {
	path := filepath.Join(b.TempDir(), "limits.yaml")
	require.NoError(b, os.WriteFile(path, []byte(version(100)), 0o600))
	w, err := Watch(path, memory.New(nil), nil)
	require.NoError(b, err)
	defer w.Close()
	b.ReportAllocs()
	for b.Loop() {
		if w.Limiters().For("one") == nil {
			b.Fatal("no limiter")
		}
	}
}
