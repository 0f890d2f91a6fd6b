package headgate_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An outage takes a server away for a while. It returns when the server began to answer
// again.
type outage struct {
	name string
	back func(length time.Duration) (answers time.Time)
}

// stopped suspends the process.
func stopped(s *redistest.Server) outage {
	return outage{"stopped", func(length time.Duration) time.Time {
		s.Stop()
		time.Sleep(length)
		defer s.Cont()
		return time.Now()
	}}
}

// restarted kills the process, and starts an empty one.
func restarted(t *testing.T, s *redistest.Server) outage {
	return outage{"restarted", func(length time.Duration) time.Time {
		s.Kill()
		time.Sleep(length)
		s.Restart(t)
		return time.Now()
	}}
}

// dropped has the link drop every packet.
func dropped(l *redistest.Link) outage {
	return outage{"dropped", func(length time.Duration) time.Time {
		l.Drop()
		time.Sleep(length)
		l.Pass()
		return time.Now()
	}}
}

// felt is what callers get around an outage.
type felt struct {
	after     time.Duration // from the server's first answer to the begin of the last undecided call
	later     int           // undecided calls that began since
	during    int           // calls that began during the outage
	undecided int           // of these
}

// feel begins a call per pause, for half a second before an outage to a while after it.
func feel(l *headgate.Limiter, o outage, length, pause, after time.Duration) felt {
	type call struct {
		began   time.Time
		decided bool
	}
	var mu sync.Mutex
	var calls []call
	var running sync.WaitGroup
	var stop atomic.Bool
	running.Add(1)
	go func() {
		defer running.Done()
		next := time.Now()
		for i := 0; !stop.Load(); i++ {
			time.Sleep(time.Until(next))
			next = next.Add(pause)
			running.Add(1)
			began := time.Now()
			go func() {
				defer running.Done()
				d, err := l.Allow(context.Background(), fmt.Sprint("user:", i%100))
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, call{began, err == nil && d.Err == nil})
			}()
		}
	}()
	time.Sleep(500 * time.Millisecond)
	begins := time.Now()
	answers := o.back(length)
	time.Sleep(after)
	stop.Store(true)
	running.Wait()
	f := felt{}
	for _, c := range calls {
		switch {
		case c.began.Before(begins):
		case c.began.Before(answers):
			f.during++
			if !c.decided {
				f.undecided++
			}
		case !c.decided:
			f.later++
			f.after = max(f.after, c.began.Sub(answers))
		}
	}
	return f
}

// wideOpen is for calls that no store has to deny.
var wideOpen = headgate.Policy{Name: "wide", Algorithm: algo.FixedWindow(algo.Per(algo.MaxLimit, algo.MaxPeriod)), OnFailure: headgate.FailOpen}

// onServer returns a limiter on a server, by Open or on a client with go-redis' defaults.
func onServer(t *testing.T, s *redistest.Server, opened bool, p headgate.Policy) *headgate.Limiter {
	var store backend.Store
	if opened {
		var err error
		store, err = standalone.Open("redis://"+s.Addr(), nil)
		require.NoError(t, err)
	} else {
		c := redis.NewClient(&redis.Options{Addr: s.Addr()})
		t.Cleanup(func() { _ = c.Close() })
		store = standalone.New(c, nil)
	}
	t.Cleanup(func() { _ = store.Close() })
	l := limiter(t, store, nil, p)
	_, _ = l.Allow(context.Background(), "loads the script")
	return l
}

// TestOutageEnds: an outage ends when the server answers.
func TestOutageEnds(t *testing.T) {
	lengths := []time.Duration{150, 400}
	if redistest.Long() {
		lengths = []time.Duration{20, 50, 90, 120, 150, 200, 300, 500, 1000, 3000}
	}
	for name, within := range map[string]time.Duration{"stopped": 20, "restarted": 120, "dropped": 150} {
		t.Run(name, func(t *testing.T) {
			var o outage
			var s *redistest.Server
			if name == "dropped" {
				var link *redistest.Link
				s, link = redistest.StartBehindLink(t)
				o = dropped(link)
			} else if s = redistest.Start(t); name == "stopped" {
				o = stopped(s)
			} else {
				o = restarted(t, s)
			}
			l := onServer(t, s, true, wideOpen)
			for _, length := range lengths {
				var fs []felt
				for range redistest.Steps(1, 5) {
					fs = append(fs, feel(l, o, length*time.Millisecond, 500*time.Microsecond, 1500*time.Millisecond))
				}
				slices.SortFunc(fs, func(a, b felt) int { return int(a.after - b.after) })
				m := fs[len(fs)/2]
				t.Logf("%s %v: median %v (%d calls), worst %v; of %d calls during it %d undecided",
					name, length*time.Millisecond, m.after, m.later, fs[len(fs)-1].after, m.during, m.undecided)
				assert.LessOrEqual(t, fs[len(fs)-1].after, within*time.Millisecond)
			}
		})
	}
}
