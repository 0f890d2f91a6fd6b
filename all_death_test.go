package headgate_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/stretchr/testify/require"
)

// mortal are users and organisations of a cluster of which one primary dies. Users of
// the living primaries belong to the organisation of the mortal one, and the other way
// round.
type mortal struct {
	rich, poor, wide, tight *headgate.Limiter
	pairs                   [2]mortalPair
}

type mortalPair struct {
	users []string // the first half are poor: most of their calls are denied
	org   string
}

const mortalUsers, mortalCallers = 8, 16

// mortalKeys names keys of the primary of slot 0, then keys of the other primaries.
func mortalKeys(c *redistest.Cluster) string {
	victim, keys := c.Primary(0), [2][]string{}
	for i := 0; len(keys[0]) <= mortalUsers || len(keys[1]) <= mortalUsers; i++ {
		key, on := fmt.Sprint("k", i), 1
		if c.Primary(slot.Of(slot.Tag(key, ""))) == victim {
			on = 0
		}
		if len(keys[on]) <= mortalUsers {
			keys[on] = append(keys[on], key)
		}
	}
	return strings.Join(append(keys[0], keys[1]...), ",")
}

func newMortal(t *testing.T, s backend.Store, keys string) (m mortal) {
	all := strings.Split(keys, ",")
	dies, lives := all[:mortalUsers+1], all[mortalUsers+1:]
	m.pairs = [2]mortalPair{{lives[1:], dies[0]}, {dies[1:], lives[0]}}
	m.rich = limiter(t, s, &headgate.Options{DenyCacheTTL: -1}, level("user", 1_000_000))
	for _, l := range []struct {
		at *(*headgate.Limiter)
		p  headgate.Policy
	}{{&m.poor, level("user", 20)}, {&m.wide, level("wide", 1_000_000)}, {&m.tight, level("tight", 200)}} {
		var err error
		*l.at, err = m.rich.With(l.p)
		require.NoError(t, err)
	}
	return m
}

// run calls until the file stop is there and nothing is given back any more. It returns
// how many calls of each pair were admitted, by the wide and the tight policy, and how
// many were perhaps counted.
func (m *mortal) run(t *testing.T, stop string) (admitted [2][2]int64, perhaps int64) {
	var n [2][2]atomic.Int64
	var over atomic.Bool
	wait := faulttest.Go(mortalCallers, func(caller int) {
		for i := caller; !over.Load(); i++ {
			p, user, org, by := &m.pairs[i%2], m.rich, m.wide, i/2%2
			if i/4%mortalUsers < mortalUsers/2 {
				user = m.poor
			}
			if by == 1 {
				org = m.tight
			}
			d, err := headgate.All(context.Background(), user.Part(p.users[i/4%mortalUsers]), org.Part(p.org))
			if err != nil {
				t.Error(err)
				return
			}
			if d.Allowed {
				n[i%2][by].Add(1)
			}
		}
	})
	for !exists(stop) {
		time.Sleep(5 * time.Millisecond)
	}
	over.Store(true)
	wait()
	require.Eventually(t, func() bool { return headgate.Cancelling(m.rich) == 0 }, 30*time.Second, time.Millisecond)
	for i := range n {
		for by := range n[i] {
			admitted[i][by] = n[i][by].Load()
		}
	}
	return admitted, m.rich.Stats().PerhapsCounted
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func used(t *testing.T, l *headgate.Limiter, keys ...string) (sum int64) {
	for _, key := range keys {
		require.Eventually(t, func() bool {
			d, err := l.Peek(context.Background(), headgate.Call{Key: key})
			if err != nil || d.Err != nil {
				return false
			}
			sum += d.Used
			return true
		}, 30*time.Second, time.Millisecond)
	}
	return sum
}

// TestAllNodeDies: a primary of a cluster is killed under load. Once quiet, the keys of
// the others count what was admitted. Those of the dead one count at most the calls more
// that it was sent and did not answer, and those that were being given back. Its replica
// may lack what was in flight to it.
func TestAllNodeDies(t *testing.T) {
	processes := redistest.Steps(2, 8)
	open := func(addrs string) backend.Store {
		s, err := cluster.Open(strings.Split(addrs, ","), &cluster.Options{Budget: 5 * time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	if _, ok := redistest.Child(); ok {
		m := newMortal(t, open(os.Getenv("ALL_ADDRS")), os.Getenv("ALL_KEYS"))
		used(t, m.rich, strings.Split(os.Getenv("ALL_KEYS"), ",")...) // loads the script
		redistest.Ready()
		a, perhaps := m.run(t, os.Getenv("ALL_STOP"))
		redistest.Result("%d %d %d %d %d", a[0][0], a[0][1], a[1][0], a[1][1], perhaps)
		return
	}
	var args []string
	if redistest.Long() {
		args = redistest.Elections
	}
	c := redistest.StartCluster(t, args...)
	keys, stop := mortalKeys(c), filepath.Join(t.TempDir(), "stop")
	m := newMortal(t, open(strings.Join(c.Addrs(), ",")), keys)
	before := make(chan int64, 1)
	go func() {
		defer close(before)
		defer func() { _ = os.WriteFile(stop, nil, 0o600) }()
		before <- m.kill(t, c)
	}()
	var sum [5]int64
	for _, line := range redistest.Processes(t, processes, t.Name(), "ALL_ADDRS="+strings.Join(c.Addrs(), ","), "ALL_KEYS="+keys, "ALL_STOP="+stop) {
		var n [5]int64
		_, err := fmt.Sscan(line, &n[0], &n[1], &n[2], &n[3], &n[4])
		require.NoError(t, err, line)
		for i := range n {
			sum[i] += n[i]
		}
	}
	perhaps, inFlight := sum[4], int64(processes*mortalCallers)
	lives, dies := m.pairs[1], m.pairs[0]
	require.Equal(t, sum[2], used(t, m.wide, lives.org))
	require.Equal(t, sum[3], used(t, m.tight, lives.org))
	require.Equal(t, sum[0]+sum[1], used(t, m.rich, dies.users...), "users of the dead organisation")
	org, tight, users := used(t, m.wide, dies.org), used(t, m.tight, dies.org), used(t, m.rich, lives.users...)
	t.Logf("admitted %d, of the dead primary's organisation %d + %d, counted %d + %d; of its users %d, counted %d; perhaps counted %d",
		sum[0]+sum[1]+sum[2]+sum[3], sum[0], sum[1], org, tight, sum[2]+sum[3], users, perhaps)
	require.Positive(t, perhaps)
	require.GreaterOrEqual(t, org, <-before)
	for _, c := range [][2]int64{{org, sum[0]}, {tight, sum[1]}, {users, sum[2] + sum[3]}} {
		require.LessOrEqual(t, c[0], c[1]+perhaps+inFlight)
		require.GreaterOrEqual(t, c[0], c[1]-inFlight)
	}
}

// kill kills the primary of slot 0 under load, and returns when its replica serves. It
// returns how much the replica had counted for the organisation at least.
func (m *mortal) kill(t *testing.T, c *redistest.Cluster) (counted int64) {
	org, victim := m.pairs[0].org, c.Primary(0)
	replica := c.Replica(victim).Client(t)
	for counted < 200 {
		counted = used(t, m.wide, org)
		time.Sleep(5 * time.Millisecond)
	}
	at := victim.Client(t)
	require.NoError(t, at.Set(context.Background(), "{"+slot.Tag(org, "")+"}", 1, time.Minute).Err())
	require.NoError(t, at.Wait(context.Background(), 1, 5*time.Second).Err())
	victim.Stop() // calls are sent that it will not answer
	time.Sleep(50 * time.Millisecond)
	victim.Kill()
	if !redistest.Long() { // else after the election
		time.Sleep(50 * time.Millisecond)
		require.NoError(t, replica.Do(context.Background(), "CLUSTER", "FAILOVER", "TAKEOVER").Err())
	}
	c.Promoted(t, 0, victim)
	used(t, m.wide, org)                                                     // waits until it serves
	time.Sleep(time.Duration(redistest.Steps(200, 2000)) * time.Millisecond) // load after it
	return counted
}
