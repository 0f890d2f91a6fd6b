package cluster_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/oracle"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/stretchr/testify/require"
)

// held is how long the slot stays open.
var held = time.Duration(redistest.Steps(2, 10)) * time.Second

// small are sets of small states, and the log alone: what lies under one key.
func small() map[string][]backend.Policy {
	l := algo.Per(50, time.Second)
	p := func(name string, a algo.Algorithm) backend.Policy {
		return backend.Policy{Name: name, Algorithm: a, OnFailure: backend.FailClosed}
	}
	set := []backend.Policy{p("fixed", algo.FixedWindow(l)), p("sliding", algo.SlidingWindow(l)), p("token", algo.TokenBucket(l, 50)), p("bucketed", algo.BucketedWindow(l, 10))}
	return map[string][]backend.Policy{
		"fixed": set[:1], "token": set[2:3], "set": set, "log": {p("log", algo.SlidingLog(l))},
	}
}

// inSlot returns keys with that prefix which all lie in slot s.
func inSlot(s, n int, prefix string) (keys []string) {
	k := []byte(prefix)
	for i := int64(0); len(keys) < n; i++ {
		if k = strconv.AppendInt(k[:len(prefix)], i, 10); slot.Of(string(k)) == s {
			keys = append(keys, string(k))
		}
	}
	return keys
}

// TestReshard moves a slot under load and holds it open for seconds, with its
// keys on both sides and new ones coming: no caller sees an error, and no
// window ever holds more than its algorithm's worst.
func TestReshard(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	const moved = 42
	store := open(c.Addrs(), &cluster.Options{Budget: time.Second})
	defer store.Close()
	from := c.Primary(moved)
	to := c.Primary(slot.Count - 1)
	require.NotEqual(t, from, to)
	w := watch{oracles: map[string]*oracle.Oracle{}}
	stop := make(chan struct{})
	var running sync.WaitGroup
	for name, ps := range small() {
		keys := inSlot(moved, redistest.Steps(8, 100), name)
		for range 2 {
			running.Add(1)
			go func() {
				defer running.Done()
				w.calls(t, store, name, ps, keys, stop)
			}()
		}
	}
	time.Sleep(held / 10)
	m := beginMove(t, c, moved, to)
	half := 0
	for begin := time.Now(); time.Since(begin) < held; time.Sleep(held / 50) {
		half += m.keys(t, 2)
	}
	require.Positive(t, half, "keys lay on both sides")
	m.end(t)
	time.Sleep(held / 10)
	close(stop)
	running.Wait()
	t.Logf("%d decisions, %d passed, slot open for %v; errors and charges above a worst: none", w.made.Load(), w.passed.Load(), held)
	require.Greater(t, w.made.Load(), int64(1000))
	for name, o := range w.oracles {
		o.Late(w.lag)
		require.NoError(t, o.Check(), name)
	}
	c.NoImmortals(t)
}

// watch is what the load of a reshard saw.
type watch struct {
	made, passed atomic.Int64
	mu           sync.Mutex
	oracles      map[string]*oracle.Oracle // by the instants before the calls
	lag          time.Duration             // the longest call
}

func (w *watch) calls(t *testing.T, s backend.Store, name string, ps []backend.Policy, keys []string, stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(2 * time.Millisecond):
		}
		// New keys come into play all the time.
		key := keys[i/100%len(keys)]
		began := time.Now()
		d, err := layer.Ask(context.Background(), s, backend.Request{Op: backend.Take,
			Group: backend.Group{Key: key, Policies: ps, Cost: 1 + int64(i%3)}})
		w.made.Add(1)
		if err != nil {
			t.Errorf("%s on %s: %v", name, key, err)
			return
		}
		if d.Allowed {
			w.passed.Add(1)
			w.add(ps, key, began, 1+int64(i%3))
		}
	}
}

func (w *watch) add(ps []backend.Policy, key string, began time.Time, units int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lag = max(w.lag, time.Since(began))
	for _, p := range ps {
		id := key + "/" + p.Name
		if w.oracles[id] == nil {
			w.oracles[id] = oracle.New(p.Algorithm)
		}
		w.oracles[id].Add(began.UnixMicro(), units)
	}
}

// TestMoved: a slot that has moved for good is found by its
// MOVED, and a whole primary's slots after a failover in good order.
func TestMoved(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	store := open(c.Addrs()[:1], &cluster.Options{Budget: 5 * time.Second})
	defer store.Close()
	l := faulttest.Limiter(t, store, faulttest.Wide)
	key := inSlot(7, 1, "k")[0]
	for i := range 5 {
		_, err := l.Allow(context.Background(), key)
		require.NoError(t, err)
		if i == 2 {
			move(t, c, []int{7}, c.Primary(slot.Count-1))
		}
	}
	require.EqualValues(t, 5, faulttest.Used(t, l, key))
	was := c.Primary(7)
	promote(t, c.Replica(was))
	require.Eventually(t, func() bool {
		d, err := l.Peek(context.Background(), headgate.Call{Key: key})
		return err == nil && d.Err == nil && d.Used == 5
	}, 5*time.Second, 20*time.Millisecond)
}

// adversarial are keys of one who would like to choose a slot, or to be
// somebody else.
func adversarial(n int) []string {
	shapes := []func(i int) string{
		func(i int) string { return fmt.Sprintf("{x}%d", i) },
		func(i int) string { return fmt.Sprintf("}%d{x}", i) },
		func(i int) string { return fmt.Sprintf("%d{", i) },
		func(i int) string { return fmt.Sprintf("{}%d", i) },
		func(i int) string { return fmt.Sprintf("\x00%d", i) },
		func(i int) string { return fmt.Sprintf("%d%s", i, strings.Repeat("a", 4000)) },
		func(i int) string { return fmt.Sprintf("\xff\xfe%d", i) },
		func(i int) string { return names.Tag(fmt.Sprintf("{x}%d", i), "") },
		func(i int) string { return names.Tag(fmt.Sprintf("user:%d", i), "s1.0") },
		func(i int) string { return string(names.DefaultPrefix.Hash(fmt.Sprint("user:", i))) },
		func(i int) string { return fmt.Sprintf("user:%d:log:p", i) },
	}
	var keys []string
	for i := range n {
		keys = append(keys, shapes[i%len(shapes)](i))
	}
	return keys
}

// TestKeysCannotChooseTheirSlot: slots of adversarial keys are spread as
// random ones are, and each key has a count of its own.
func TestKeysCannotChooseTheirSlot(t *testing.T) {
	const n, parts = 5000, 64
	keys := adversarial(n)
	var counts [parts]float64
	tags := map[string]bool{}
	for _, k := range keys {
		tag := names.Tag(k, "")
		require.False(t, tags[tag], "%q shares a tag", k)
		tags[tag] = true
		counts[slot.Of(tag)*parts/slot.Count]++
	}
	chi := 0.0
	for _, c := range counts {
		chi += (c - n/parts) * (c - n/parts) / (n / parts)
	}
	// 63 degrees of freedom: random slots pass 112 once in ten thousand times.
	t.Logf("chi-squared of %d keys in %d parts: %.1f", n, parts, chi)
	require.Less(t, chi, 112.0)

	c := redistest.SharedCluster(t)
	store := open(c.Addrs(), patient)
	defer store.Close()
	l := faulttest.Limiter(t, store, faulttest.Wide)
	manyAtOnce(keys, func(k string) {
		if d, err := l.Allow(context.Background(), k); err != nil || d.Used != 1 {
			t.Errorf("%.40q: used %d, %v %v", k, d.Used, err, d.Err)
		}
	})
	admin := c.Client(t)
	for _, k := range keys[:200] { // the server agrees on where they lie
		tag := names.Tag(k, "")
		require.EqualValues(t, slot.Of(tag), admin.ClusterKeySlot(context.Background(), names.DefaultPrefix.Hash(tag)).Val())
	}
}

func manyAtOnce(keys []string, f func(string)) {
	var next atomic.Int64
	faulttest.Go(faulttest.Callers, func(int) {
		for i := next.Add(1) - 1; i < int64(len(keys)); i = next.Add(1) - 1 {
			f(keys[i])
		}
	})()
}
