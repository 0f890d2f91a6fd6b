package headgate_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// linkTrip is the round trip of TestBorrowOverALink.
const linkTrip = 2 * time.Millisecond

// TestBorrowOverALink calls one key over a link of 2 ms from processes whose calls arrive
// at random, with loans and without. A call from a loan takes no round trip.
func TestBorrowOverALink(t *testing.T) {
	if _, ok := redistest.Child(); ok {
		linkChild(t)
		return
	}
	if !redistest.Long() {
		t.Skip("it measures latencies, and takes all of the machine: run by make test-long")
	}
	for _, f := range []struct{ processes, rate int }{{4, 500}, {32, 2_000}} {
		t.Run(fmt.Sprint(f.processes, " x ", f.rate), func(t *testing.T) { overALink(t, f.processes, f.rate) })
	}
}

func overALink(t *testing.T, processes, rate int) {
	relay := redistest.NewRelay(t, redistest.Start(t).Addr(), linkTrip)
	took := map[time.Duration][]time.Duration{}
	for _, term := range []time.Duration{0, 50 * time.Millisecond} {
		dir := t.TempDir()
		redistest.Processes(t, processes, "TestBorrowOverALink", "HEADGATE_LINK="+relay.Addr(), "HEADGATE_LINK_DIR="+dir,
			"HEADGATE_LINK_T="+term.String(), fmt.Sprint("HEADGATE_LINK_RATE=", rate))
		all := readTook(t, dir)
		t.Logf("%d processes with %d calls per second each, borrowed for %v: %d calls, p50 %v, p99 %v",
			processes, rate, term, len(all), all[len(all)/2], all[len(all)*99/100])
		took[term] = all
	}
	with, without := took[50*time.Millisecond], took[0]
	require.GreaterOrEqual(t, without[len(without)/2], linkTrip)
	if p50 := without[len(without)/2]; p50 > 2*linkTrip {
		t.Skipf("NOT TESTED: without loans a call takes %v over a link of %v: this machine can't carry so many", p50, linkTrip)
	}
	most := 5 * time.Microsecond
	if processes < 32 { // each sleeps between its calls, and wakes with cold caches
		most = linkTrip / 4
	}
	require.LessOrEqual(t, with[len(with)/2], most)
	require.LessOrEqual(t, float64(with[len(with)*99/100]), 1.2*float64(without[len(without)*99/100]))
}

func linkChild(t *testing.T) {
	term, err := time.ParseDuration(os.Getenv("HEADGATE_LINK_T"))
	require.NoError(t, err)
	rate, err := strconv.Atoi(os.Getenv("HEADGATE_LINK_RATE"))
	require.NoError(t, err)
	store, err := standalone.Open("redis://"+os.Getenv("HEADGATE_LINK"), &standalone.Options{Budget: 2 * time.Second})
	require.NoError(t, err)
	l, err := headgate.New(store, []headgate.Policy{{
		Name: "api", Algorithm: algo.TokenBucket(algo.PerSecond(1<<30), 1<<30), OnFailure: headgate.FailClosed,
	}}, &headgate.Options{Borrow: term})
	require.NoError(t, err)
	redistest.Ready()
	var mu sync.Mutex
	var took []time.Duration
	var wait sync.WaitGroup
	begin, lasts := time.Now(), time.Duration(redistest.Steps(700, 5_000))*time.Millisecond
	grows := lasts / 4 // until all calls come: what begins with more than the machine can carry finds no round trip short
	for at := time.Duration(0); at < lasts; {
		now := float64(rate) * min(1, 0.05+float64(at)/float64(grows))
		at += time.Duration(rand.ExpFloat64() / now * float64(time.Second))
		time.Sleep(at - time.Since(begin))
		wait.Add(1)
		go func() {
			defer wait.Done()
			before := time.Now()
			d, err := l.Allow(context.Background(), "key")
			each := time.Since(before)
			if err != nil {
				t.Error(err)
			}
			if before.Sub(begin) < lasts/3 || !d.Allowed { // connections and homes begin; or a busy machine was late
				return
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, each)
		}()
	}
	wait.Wait()
	var b bytes.Buffer
	require.NoError(t, binary.Write(&b, binary.LittleEndian, took))
	n, _ := redistest.Child()
	require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("HEADGATE_LINK_DIR"), fmt.Sprint(n)), b.Bytes(), 0o600))
}

func readTook(t *testing.T, dir string) (all []time.Duration) {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		some := make([]time.Duration, len(b)/8)
		require.NoError(t, binary.Read(bytes.NewReader(b), binary.LittleEndian, some))
		all = append(all, some...)
	}
	require.NotEmpty(t, all)
	slices.Sort(all)
	return all
}
