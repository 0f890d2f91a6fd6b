package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/testclock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// process is one of the fleet: a store of its own, and limiters on it.
type process struct {
	world   *World
	number  int
	store   backend.Store
	limiter *headgate.Limiter
	callers []*caller
}

func (w *World) newProcess(i int) (*process, error) {
	p := &process{world: w, number: i}
	p.store = standalone.New(testclock.Opened{Options: &redis.Options{
		Addr: w.nodes[0].addr, Dialer: w.Dialer(i), PoolSize: 10,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}}, nil)
	var err error
	p.limiter, err = headgate.New(p.store, w.plan.Policies, nil)
	for j := range w.plan.Callers {
		p.callers = append(p.callers, &caller{process: p, name: fmt.Sprintf("p%d.c%d", i, j), number: i*64 + j, dice: w.dice("caller", i, j)})
	}
	return p, err
}

// caller calls a limiter, again and again.
type caller struct {
	process *process
	name    string
	number  int // among all
	dice    *rand.Rand
}

// pause sleeps for about d, to an instant that no other caller has.
func (c *caller) pause(d time.Duration) {
	const row = grid * 1024
	now := time.Now().UnixNano()
	at := (now+int64(d))/row*row + row + int64(c.number)*grid
	time.Sleep(time.Duration(at - now))
}

func (c *caller) run(end time.Time) {
	for {
		c.pause(time.Duration(c.dice.ExpFloat64() * float64(50*time.Millisecond)))
		if !time.Now().Before(end) {
			return
		}
		d, err := c.process.limiter.AllowN(context.Background(), fmt.Sprint("k", c.dice.IntN(5)), 1)
		c.process.world.note(c.name, fmt.Sprintf("%v %v %v %v %v", d.Allowed, d.Source, d.State, d.Err, err))
	}
}

// Run runs a plan to its end, in a bubble, and returns its trace.
func Run(p *Plan) *World {
	w := newWorld(p)
	time.Sleep(time.Until(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)))
	for _, policy := range p.Policies {
		w.learn(policy)
	}
	end := time.Now().Add(p.Lasts)
	var callers sync.WaitGroup
	for i := range p.Procs {
		proc, err := w.newProcess(i)
		if err != nil {
			w.fail("plan", err)
			return w
		}
		w.procs = append(w.procs, proc)
		for _, c := range proc.callers {
			callers.Add(1)
			go func() {
				defer callers.Done()
				c.run(end)
			}()
		}
	}
	callers.Wait()
	time.Sleep(time.Minute)
	w.end()
	for _, proc := range w.procs {
		_ = proc.store.Close()
	}
	time.Sleep(time.Minute)
	return w
}
