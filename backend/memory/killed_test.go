package memory

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

const (
	killedKeys    = 300
	killedCallers = 2
	killedEvery   = 3 * time.Millisecond
)

// killedGroup is the call of the killed process: a call, four units, and a slot.
func killedGroup(key int) backend.Group {
	return backend.Group{
		Key: fmt.Sprint("key", key), Costs: []int64{1, 4, 1},
		Policies: []backend.Policy{by("calls", algo.FixedWindow(algo.PerDay(1e9))), by("units", algo.SlidingLog(algo.PerDay(1e6))), by("slots", algo.InFlight(1e6))},
	}
}

// TestKilled kills a process that reserves and writes its file, at random instants. Of each key
// the next process has what was charged when some one instant had come: counts, log and slots
// of the same charges. That instant lies between those of the snapshot, and is at most one
// interval and one write old.
func TestKilled(t *testing.T) {
	if name := os.Getenv("HEADGATE_KILLED"); name != "" {
		killedProcess(name)
	}
	name := filepath.Join(t.TempDir(), "counts")
	base := make([]int64, killedKeys)
	for i := range redistest.Steps(20, 1000) {
		if i%20 == 0 { // the leases stay, and a process must live for as long as one write
			_ = os.Remove(name)
			clear(base)
		}
		charges, end := kill(t, name)
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // killed before its first write
		}
		require.NoError(t, err)
		s := New(nil)
		l := newLoader(s, bytes.NewReader(text))
		require.NoError(t, l.load())
		require.NoError(t, l.install(s))
		require.Less(t, end-l.saved, (killedEvery + 5*time.Second).Microseconds(), "round %d", i)
		for key := range base {
			had, begun := base[key], base[key]
			for _, c := range charges[key] {
				if c[1] < l.saved {
					had++
				}
				if c[0] <= l.last {
					begun++
				}
			}
			base[key] = same(t, s, key)
			require.GreaterOrEqual(t, base[key], had, "round %d, key %d", i, key)
			require.LessOrEqual(t, base[key], begun+killedCallers, "round %d, key %d", i, key)
		}
	}
}

// same requires that all counts of a key are of the same charges, and returns how many.
func same(t *testing.T, s *Store, key int) int64 {
	t.Helper()
	g := killedGroup(key)
	g.Costs, g.Each = nil, make([]backend.State, 3)
	ask(t, s, backend.Peek, g)
	n, leases := g.Each[0].Used, int64(0)
	for _, l := range s.stripes[s.stripeAt(s.hash(&g))].mu.leases.open.kept {
		if l.key == s.hash(&g) {
			leases++
		}
	}
	require.Equal(t, [3]int64{4 * n, n, n}, [3]int64{g.Each[1].Used, g.Each[2].Used, leases}, "key %d", key)
	return n
}

// kill starts a process and kills it. It returns when each charge of each key began and ended,
// and the last of these instants.
func kill(t *testing.T, name string) (charges [killedKeys][][2]int64, end int64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), "HEADGATE_KILLED="+name)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	r, first := bufio.NewReader(out), true
	for {
		var line [24]byte
		if _, err := io.ReadFull(r, line[:]); err != nil {
			break
		}
		if first { // it decides
			first = false
			time.AfterFunc(time.Duration(mathrand.IntN(60_000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
		}
		key, ended := binary.LittleEndian.Uint64(line[:]), int64(binary.LittleEndian.Uint64(line[16:]))
		charges[key] = append(charges[key], [2]int64{int64(binary.LittleEndian.Uint64(line[8:])), ended})
		end = max(end, ended)
	}
	_ = cmd.Wait()
	return charges, end
}

// killedProcess charges keys and writes when each call began and ended, by the store's clock.
func killedProcess(name string) {
	s := New(&Options{File: name, Every: killedEvery, FileWait: time.Minute})
	for range killedCallers {
		go func() {
			for {
				key := mathrand.IntN(killedKeys)
				g := killedGroup(key)
				g.Lease = &backend.Lease{Length: 24 * time.Hour}
				_, _ = rand.Read(g.Lease.ID[:])
				begin := s.clock.beforeLock()
				var d backend.Decision
				if err := s.Do(context.Background(), &backend.Request{Op: backend.Reserve, Group: g}, &d); err != nil || !d.Allowed {
					fmt.Fprintln(os.Stderr, err, d)
					os.Exit(1)
				}
				var line [24]byte
				for i, n := range []int64{int64(key), begin, s.clock.beforeLock()} {
					binary.LittleEndian.PutUint64(line[8*i:], uint64(n))
				}
				_, _ = os.Stdout.Write(line[:]) // at once, as so few bytes of a pipe
			}
		}()
	}
	select {}
}
