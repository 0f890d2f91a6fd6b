package headgate_test

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// ofTheDead are the algorithms of TestDeniedBesideADeadProcess.
var ofTheDead = []algo.Algorithm{
	algo.FixedWindow(algo.PerDay(1000)), algo.TokenBucket(algo.PerHour(1000), 1000),
	algo.SlidingLog(algo.PerHour(1000)), algo.CompactLog(algo.PerHour(1000)),
}

// TestDeniedBesideADeadProcess: a process is killed while it holds units. Other processes are
// denied because of these for three terms at most, also by the deny cache.
func TestDeniedBesideADeadProcess(t *testing.T) {
	if _, ok := redistest.Child(); ok {
		holdAndDie(t)
		return
	}
	for _, term := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond} {
		for i := range ofTheDead {
			denied, last := 0, time.Duration(0)
			for try := 0; try < redistest.Steps(1, 5) || denied == 0 && try < 10; try++ {
				n, after := deniedBeside(t, term, i)
				denied, last = denied+n, max(last, after)
			}
			t.Logf("%v, T = %v: %d denials because of a dead process's units, the last one %v after its death", &ofTheDead[i], term, denied, last)
			require.Positive(t, denied)
			require.LessOrEqual(t, last, 3*term)
		}
	}
}

// deniedBeside kills a process that holds units, and returns how many calls are denied because
// of these, and when the last of them began.
func deniedBeside(t *testing.T, term time.Duration, i int) (denied int, last time.Duration) {
	server := redistest.Start(t)
	out := redistest.Processes(t, 1, "TestDeniedBesideADeadProcess",
		"HEADGATE_DEAD="+server.Addr(), "HEADGATE_DEAD_T="+term.String(), "HEADGATE_DEAD_I="+strconv.Itoa(i))
	ns, err := strconv.ParseInt(out[0], 10, 64)
	require.NoError(t, err)
	died := time.Unix(0, ns)
	store, err := standalone.Open("redis://"+server.Addr(), patient)
	require.NoError(t, err)
	defer store.Close()
	policy := headgate.Policy{Name: "api", Algorithm: ofTheDead[i], OnFailure: headgate.FailClosed}
	l, err := headgate.New(store, []headgate.Policy{policy}, nil)
	require.NoError(t, err)
	seen, err := l.Peek(context.Background(), headgate.Call{Key: "key"})
	require.NoError(t, err)
	for lent := seen.Lent; lent > 0; { // a call for which there would be room
		begin := time.Now()
		d, err := l.AllowN(context.Background(), "key", seen.Remaining+1)
		require.NoError(t, err)
		require.NoError(t, d.Err)
		if lent = d.Lent; lent > 0 && !d.Allowed {
			require.LessOrEqual(t, d.RetryAfter, 3*term)
			denied, last = denied+1, begin.Sub(died)
		}
		time.Sleep(time.Millisecond)
	}
	return denied, last
}

// holdAndDie makes calls until the process holds units, and kills it.
func holdAndDie(t *testing.T) {
	term, err := time.ParseDuration(os.Getenv("HEADGATE_DEAD_T"))
	require.NoError(t, err)
	i, err := strconv.Atoi(os.Getenv("HEADGATE_DEAD_I"))
	require.NoError(t, err)
	l := borrowingAt(t, os.Getenv("HEADGATE_DEAD"), ofTheDead[i], term)
	redistest.Ready()
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(term / 20) {
		d, err := l.Allow(context.Background(), "key")
		require.NoError(t, err)
		if d.Source == headgate.FromLoan && time.Since(begin) > 5*term {
			redistest.Result("%d", time.Now().UnixNano())
			redistest.Die()
		}
	}
	t.Fatal("nothing was lent in a minute")
}
