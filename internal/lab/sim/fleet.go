package sim

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/chance"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// process is one of the fleet: a store of its own, and a limiter for each list of policies.
type process struct {
	world    *World
	number   int
	store    backend.Store
	limiters []*headgate.Limiter
	callers  []*caller
}

func (w *World) newProcess(i int) (*process, error) {
	p := &process{world: w, number: i}
	var err error
	p.store = p.newStore()
	for j := range w.plan.Lists {
		list := w.plan.list(i, j)
		opts := &headgate.Options{Instances: w.plan.Procs, Shards: w.plan.Shards}
		if !w.plan.Unlent[j] {
			opts.Borrow = w.plan.Borrow
		}
		if j == 0 {
			opts.Observer = func(e headgate.Event) { p.observe(e) }
		}
		l, e := headgate.New(p.store, list, opts)
		if e != nil {
			err = fmt.Errorf("%v: %w", list, e)
		}
		p.limiters = append(p.limiters, l)
	}
	p.addCallers()
	return p, err
}

// callers returns the calls of ordinary callers: those that take, and those of workloads.
func (p *Plan) callers() []func(c *caller) {
	if p.Lone {
		return []func(c *caller){(*caller).lone}
	}
	all := []func(c *caller){(*caller).take}
	for _, w := range p.Workloads {
		if w.call != nil {
			all = append(all, w.call)
		}
	}
	return all
}

// addCallers makes the process's callers: ordinary ones, those of whom much is called where
// policies borrow, a crowd, and those that call again at once.
func (p *process) addCallers() {
	w, i := p.world, p.number
	calls := w.plan.callers()
	for j := range w.plan.Callers {
		c := p.caller("c", j, calls[(i*w.plan.Callers+j)%len(calls)])
		c.rest = w.plan.Pause
	}
	if w.plan.Borrow > 0 && i < 4 {
		for j := range lenders {
			c := p.caller("b", j, (*caller).borrow)
			c.rest, c.steady, c.runs = w.plan.Lasts*lenders*4/lendings, true, w.plan.Runs
			if j == 1 && w.plan.has("lower") {
				c.call = func(c *caller) { c.list = lowered; c.borrow() }
			}
		}
	}
	if w.plan.has("crowd") && i == 0 {
		for j := range crowd {
			c := p.caller("s", j, (*caller).leave)
			c.rest, c.leaves = 2*time.Second, true
		}
	}
	if w.plan.has("late") {
		for j := range hurries {
			c := p.caller("h", j, (*caller).hurry)
			c.steady, c.hurries = true, true
		}
	}
}

// caller makes one, with a number of its own among those of the fleet.
func (p *process) caller(kind string, j int, call func(c *caller)) *caller {
	w := p.world
	c := &caller{process: p, name: fmt.Sprintf("p%d.%s%d", p.number, kind, j), number: w.callers, dice: w.dice("caller", p.number, kind, j), call: call}
	w.callers++
	p.callers = append(p.callers, c)
	return c
}

// newStore returns the process's store, with a client of its own.
func (p *process) newStore() backend.Store {
	w, most := p.world, 0
	if w.plan.Full {
		most = w.plan.Pool
	}
	if w.plan.Cluster {
		return cluster.New(nodes{hook: p.turns, options: &redis.ClusterOptions{
			Addrs: []string{w.nodes[0].addr, w.nodes[2].addr}, Dialer: w.dialer(p.number),
			PoolSize: w.plan.Pool, MaxActiveConns: most, ReadBufferSize: buffer, WriteBufferSize: buffer,
		}}, &cluster.Options{DisableBatching: w.plan.Single})
	}
	addr := master
	if w.plan.Named {
		addr = named
	}
	return standalone.New(server{hook: p.turns(master), options: &redis.Options{
		Addr: addr, Dialer: w.dialer(p.number), PoolSize: w.plan.Pool, MaxActiveConns: most, ReadBufferSize: buffer, WriteBufferSize: buffer,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}}, &standalone.Options{DisableBatching: w.plan.Single})
}

// buffer is the size of a connection's buffers: by default most of a run's time is spent on
// clearing those.
const buffer = 4096

// nodes is a client of a cluster, of which its store takes the options and a hook for
// each node's client.
type nodes struct {
	options *redis.ClusterOptions
	hook    func(addr string) redis.Hook
}

func (n nodes) Options() *redis.ClusterOptions { return n.options }

func (n nodes) NodeHook(addr string) redis.Hook { return n.hook(addr) }

// server is a client of one server, of which its store takes the options and a hook.
type server struct {
	standalone.Client // nil
	options           *redis.Options
	hook              redis.Hook
}

func (s server) Simulated() (*redis.Options, redis.Hook) { return s.options, s.hook }

// Lookup returns the addresses of named.
func (s server) Lookup(context.Context, string) (ips []net.IPAddr, err error) {
	for _, addr := range []string{silent, master} {
		ips = append(ips, net.IPAddr{IP: net.ParseIP(strings.TrimSuffix(addr, ":6379"))})
	}
	return ips, nil
}

// observe notes which circuits open.
func (p *process) observe(e headgate.Event) {
	if e.Type == headgate.EventCircuit {
		p.world.note(fmt.Sprintf("p%d", p.number), fmt.Sprintf("circuit of %s: %s to %s", e.Circuit.Node, e.Circuit.From, e.Circuit.To))
		// The trial of an open circuit may meet a connection to a primary that has become a
		// replica. That is a failure of the server that answers, and the circuit was open before.
		replica := e.Circuit.From == "half_open" && redis.HasErrorPrefix(e.Err, "READONLY")
		if e.Circuit.To == "open" && !replica {
			p.world.opened(p.number, e.Circuit.Node, e.Err)
		}
	}
}

// teach makes the nodes know the policies of the fleet, and those of spread keys' shares.
func (w *World) teach() {
	w.plan.policies(func(policy headgate.Policy) {
		w.learn(policy)
		for i := range w.plan.Shards {
			share := policy
			share.Algorithm = policy.Algorithm.Part(int64(i), int64(w.plan.Shards))
			w.learn(share)
		}
	})
}

// drain is how long a run goes on without calls, so that all leases have ended.
const drain = 2 * time.Minute

// Run runs a plan to its end, in a bubble.
func Run(p *Plan) *World {
	w := newWorld(p)
	chance.Fix(func() uint64 { return w.hashOf("chance", time.Now().UnixNano()) })
	time.Sleep(time.Until(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))) // after the instants that package variables hold
	w.teach()
	w.start = time.Now()
	w.begin()
	go w.run()
	defer close(w.over)
	var callers sync.WaitGroup
	for i := range p.Procs {
		proc, err := w.newProcess(i)
		if err != nil {
			w.fail("the plan", err)
			return w
		}
		w.procs = append(w.procs, proc)
		for _, c := range proc.callers {
			callers.Add(1)
			go func() {
				defer callers.Done()
				c.run(w.start.Add(p.Lasts))
			}()
		}
	}
	callers.Wait()
	time.Sleep(drain)
	w.end()
	for _, proc := range w.procs {
		if err := proc.store.Close(); err != nil {
			w.fail("Close", err)
		}
	}
	time.Sleep(time.Minute)
	w.judge()
	return w
}
