package sim

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"
)

// fault is something that goes wrong at an instant, for a while.
type fault struct {
	at    time.Duration // after the begin
	lasts time.Duration // 0 for what happens once
	kind  faultKind
	node  int // an index; whatever is no primary then is spared or not, by the kind
	proc  int // of a link; -1: those of all processes
	size  uint64
}

type faultKind int

// The kinds of faults.
const (
	freeze     faultKind = iota // the node's process is stopped
	crash                       // it ends, and begins again, empty
	darkness                    // its host ends, and begins again: nothing comes back in between
	failover                    // its replica takes over, while it lives
	parting                     // nothing passes between processes and the node
	slowness                    // packets take longer
	lossy                       // packets are lost, and sent again
	cutting                     // connections are reset
	forgot                      // a middlebox forgets connections: they are silent
	refusal                     // dials are refused
	flush                       // SCRIPT FLUSH
	refusing                    // the node answers scripts with an error
	stepping                    // its clock steps
	moving                      // a bucket of slots moves to another node
	swallowing                  // replies are lost for good, on connections that stay open
	raising                     // a script that has charged ends with an error now and then
	revoking                    // the right to a command is missing that only policies with a key of their own need
	unowned                     // a bucket of slots has no owner
	allKinds
	stopped = allKinds     // nothing passes between a process and any node
	late    = allKinds + 1 // a process has no processor

	kinds = swallowing // of those that are drawn most
)

var faultNames = [allKinds + 2]string{"freeze", "crash", "darkness", "failover", "parting", "slowness", "lossy", "cutting",
	"forgot", "refusal", "flush", "refusing", "stepping", "moving", "swallowing", "raising", "revoking", "unowned", "stopped", "late"}

// ofLink reports whether it concerns the links of some processes.
func (k faultKind) ofLink() bool {
	return k >= parting && k <= refusal || k == swallowing || k >= stopped
}

func (f fault) String() string {
	return fmt.Sprintf("%v: %s of node %d, process %d, for %v (%d)", f.at, faultNames[f.kind], f.node, f.proc, f.lasts, f.size)
}

// newSchedule draws what goes wrong: bursts of faults, with calm between them in which
// everything must be well.
func newSchedule(p *Plan, dice *rand.Rand) (all []fault) {
	for at := 3 * time.Second; at < p.Lasts-calm; {
		for range 1 + dice.IntN(3) {
			f := fault{at: at, kind: faultKind(dice.IntN(int(kinds))), node: dice.IntN(2 * p.Primaries), proc: -1, size: dice.Uint64()}
			f.lasts = time.Duration(dice.ExpFloat64() * float64(400*time.Millisecond))
			if dice.IntN(8) == 0 {
				f.lasts *= 6
			}
			f.lasts = min(f.lasts, 5*time.Second)
			if dice.IntN(2) == 0 {
				f.proc = dice.IntN(p.Procs)
			}
			switch kind := kinds + faultKind(dice.IntN(int(allKinds-kinds))); {
			case dice.IntN(6) == 0:
				f.kind = kind
			case p.Distant && f.kind.lingers() > 0: // no trial finds a silent connection so far away
				f.kind = cutting
			}
			all = append(all, f)
			at += time.Duration(dice.ExpFloat64() * float64(300*time.Millisecond))
		}
		at += 2*calm + silence + time.Duration(dice.ExpFloat64()*float64(4*time.Second))
	}
	return all
}

// calm is how long after the last fault everything must be well.
const calm = 3 * time.Second

// begin makes the faults of the plan happen.
func (w *World) begin() {
	w.events.Lock()
	defer w.events.Unlock()
	for i, f := range w.plan.Schedule {
		if w.plan.Fewer >= 0 && i >= w.plan.Fewer {
			return
		}
		w.at(f.at, func() { w.happen(f) })
	}
}

// happen begins a fault, and sees to its end.
func (w *World) happen(f fault) {
	w.note("fault", f.String())
	n := w.nodes[f.node]
	if f.kind != stepping && f.kind != moving && n.replica != nil {
		n = n.replica // a fault of a replica concerns no call
	}
	end := w.fault(f, n)
	ends := f.lasts
	if end == nil {
		ends = 0
	}
	t := &trouble{proc: f.proc, node: n, kind: f.kind, from: time.Now(), to: time.Now().Add(ends + f.kind.lingers())}
	w.troubles = append(w.troubles, t)
	if end != nil {
		w.at(f.lasts, func() {
			t.to = time.Now().Add(f.kind.lingers())
			w.note("fault", "over: "+f.String())
			end()
		})
	}
}

// lingers is for how much longer a call may meet what a fault has left. An example is a
// connection that is dead and silent, and was used less than ten seconds before it is
// used again.
func (k faultKind) lingers() time.Duration {
	if k == forgot || k == darkness {
		return silence
	}
	return 0
}

// silence is after how long the library tries a connection before it uses it.
const silence = 10 * time.Second

// trouble is a fault that has happened, and whom it concerns.
type trouble struct {
	proc     int
	node     *node
	kind     faultKind
	from, to time.Time
	failed   map[int]time.Time // of forgot: when a call of a process failed first
}

// fault begins a fault of a node, and returns what ends it.
func (w *World) fault(f fault, n *node) (end func()) {
	switch f.kind {
	case freeze, crash, darkness, failover:
		return w.faultOfNode(f, n)
	case parting, slowness, lossy, refusal, cutting, forgot, swallowing, stopped:
		return w.faultOfLink(f, n)
	case flush:
		n.scripts = false
	case refusing:
		n.refuses = refusals[f.size%uint64(len(refusals))]
		return func() { n.refuses = "" }
	case stepping:
		n.ahead += time.Duration(int64(f.size%uint64(2*longestStep))) - longestStep
		w.ledger.disturb()
	case moving:
		return w.migrate(f, n)
	case raising:
		n.raises = true
		return func() { n.raises = false }
	case unowned:
		b := int(f.size % buckets)
		w.unowned[b]++
		return func() { w.unowned[b]-- }
	case late:
		return w.host.hold(f.proc)
	case revoking:
		n.revoked = true
		return func() { n.revoked = false }
	}
	return nil
}

// refusals are what a server answers that can't run a script.
var refusals = [...]string{
	"OOM command not allowed when used memory > 'maxmemory'.",
	"LOADING Redis is loading the dataset in memory",
	"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
	"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
	"READONLY You can't write against a read only replica.",
	"NOREPLICAS Not enough good replicas to write.",
	"CLUSTERDOWN The cluster is down",
}

func (w *World) faultOfNode(f fault, n *node) (end func()) {
	i := w.index(n)
	switch f.kind {
	case freeze:
		n.frozen = true
		if f.lasts > 2*time.Second {
			w.at(2*time.Second, func() { w.promote(i) })
		}
		return n.thaw
	case crash:
		n.kill()
	case darkness:
		n.dark = true
	case failover:
		w.promote(i)
		return nil
	}
	if f.lasts > time.Second/2 && f.size%4 > 0 {
		w.at(time.Second/2, func() { w.promote(i) })
	}
	return func() { n.restart() }
}

// restart begins the node's process again, with nothing, or with a copy of its primary's
// data if it has become a replica. Of two faults that have ended the process, the first
// that is over begins it.
func (n *node) restart() {
	if !n.down && !n.dark {
		return
	}
	w := n.world
	n.life++
	n.down, n.dark, n.frozen, n.scripts, n.conns, n.wants = false, false, false, false, nil, nil
	n.keeps.byTag = nil
	if n.replica != nil {
		n.keeps.copyOf(&n.replica.keeps)
		return
	}
	w.partner(n).keeps.byTag = nil
	w.ledger.disturb()
}

// longestStep is the most that a clock steps, ahead or back.
const longestStep = 10 * time.Second

// paths returns the links of a fault.
func (w *World) paths(f fault, n *node) (all []*link) {
	for i := range w.plan.Procs {
		for _, to := range w.nodes {
			if (f.proc < 0 || f.proc == i) && (to == n || f.kind == stopped) {
				all = append(all, w.link(i, to.addr))
			}
		}
	}
	return all
}

func (w *World) faultOfLink(f fault, n *node) (end func()) {
	all := w.paths(f, n)
	each := func(change func(l *link)) {
		for _, l := range all {
			change(l)
		}
	}
	switch f.kind {
	case parting, stopped:
		each(func(l *link) { l.blocked = true })
		return func() { each(w.unblock) }
	case slowness:
		by := time.Duration(f.size % uint64(80*time.Millisecond))
		each(func(l *link) { l.slow += by })
		return func() { each(func(l *link) { l.slow -= by }) }
	case lossy:
		each(func(l *link) { l.loss = 0.05 + float64(f.size%64)/256 })
		return func() { each(func(l *link) { l.loss = 0 }) }
	case refusal:
		each(func(l *link) { l.refused = true })
		return func() { each(func(l *link) { l.refused = false }) }
	case swallowing:
		each(func(l *link) { l.swallows = 0.03 + float64(f.size%64)/128 })
		return func() { each(func(l *link) { l.swallows = 0 }) }
	}
	for _, c := range append([]*conn(nil), n.conns...) {
		if f.proc >= 0 && f.proc != c.proc {
			continue
		}
		if f.kind == forgot {
			c.gone = true
			continue
		}
		n.cut(c)
	}
	return nil
}

// cut resets a connection.
func (n *node) cut(c *conn) {
	c.life = -1 // what is on its way is refused
	n.world.reset(c, syscall.ECONNRESET)
	n.forget(c)
}

// migrate moves a bucket of slots of the node to another one, key by key.
func (w *World) migrate(f fault, n *node) (end func()) {
	i := w.index(n)
	b := int(f.size % buckets)
	for range buckets {
		if w.owner[b] != i {
			b = (b + 1) % buckets
		}
	}
	if _, moves := w.moving[b]; !w.plan.Cluster || moves || w.owner[b] != i {
		return nil
	}
	to := (i/2 + 1 + int(f.size/buckets)%max(w.plan.Primaries-1, 1)) % w.plan.Primaries * 2
	if w.plan.Fresh {
		to = 2*w.plan.Primaries - 2
	}
	if w.nodes[to].replica != nil {
		to++
	}
	if to == i || w.nodes[to].replica != nil {
		return nil
	}
	w.moving[b] = move{to: to, moved: map[string]bool{}}
	return func() { w.moveKeys(b, i, to) }
}
