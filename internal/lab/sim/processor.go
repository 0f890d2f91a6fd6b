package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
)

// host is the machine of all processes of a plan in which processes are late, and of its servers,
// which are one process more. It has one processor. A process runs as long as it has something to do, for a slice at most, and then
// the next one runs. So a process that always has something to do delays all others by a slice.
//
// What takes a processor is a caller that calls, a read of what has arrived, and a read whose
// deadline has passed. The library's timers ring in time.
type host struct {
	world *World
	ready []int // processes with jobs, in their turn; the first one runs
	jobs  [][]job
	held  []int // how many faults keep each process from running
	used  time.Duration
	busy  bool
}

// job is what a process does in one go.
type job struct {
	takes  time.Duration
	yields bool // the others run next
	run    func()
}

const (
	slice    = 20 * time.Millisecond // of a process
	reading  = 20 * time.Microsecond // what has arrived
	calling  = 50 * time.Microsecond
	hurrying = 300 * time.Microsecond // a call with what its caller does for it

	hurries = 2                // callers of each process that call again at once
	apiece  = time.Millisecond // is what a link takes longer each way: a process that waits for replies does nothing meanwhile
	between = time.Millisecond // is what a process runs for that is late again and again
)

func newHost(w *World) *host {
	return &host{world: w, jobs: make([][]job, w.plan.Procs+1), held: make([]int, w.plan.Procs+1)}
}

// occupy calls f when the process has had the processor for a time, and at once in plans
// without a host. It is called from an event of the network.
func (w *World) occupy(proc int, takes time.Duration, yields bool, f func()) {
	h := w.host
	if h == nil {
		f()
		return
	}
	h.jobs[proc] = append(h.jobs[proc], job{takes, yields, f})
	h.queue(proc)
	h.next()
}

// queue puts a process behind those that are ready, if it is one.
func (h *host) queue(proc int) {
	if h.held[proc] == 0 && len(h.jobs[proc]) > 0 && !slices.Contains(h.ready, proc) {
		h.ready = append(h.ready, proc)
	}
}

// next lets the first process run.
func (h *host) next() {
	if h.busy || len(h.ready) == 0 {
		return
	}
	h.busy = true
	proc := h.ready[0]
	j := h.jobs[proc][0]
	h.jobs[proc] = h.jobs[proc][1:]
	h.world.at(j.takes, func() {
		j.run()
		h.used += j.takes
		h.world.at(0, func() { h.ran(proc, j.yields) }) // when the process has done what follows
	})
}

// ran is called when a process may go on, or another one runs.
func (h *host) ran(proc int, yields bool) {
	h.busy = false
	switch {
	case len(h.ready) == 0 || h.ready[0] != proc: // it is held
		h.used = 0
	case yields || h.used >= slice || len(h.jobs[proc]) == 0:
		h.ready, h.used = h.ready[1:], 0
		h.queue(proc)
	}
	h.next()
}

// hold keeps a process from running, and returns what ends that.
func (h *host) hold(proc int) (end func()) {
	h.held[proc]++
	if at := slices.Index(h.ready, proc); at >= 0 {
		h.ready = slices.Delete(h.ready, at, at+1)
	}
	return func() {
		h.held[proc]--
		h.queue(proc)
		h.next()
	}
}

// turn waits until the caller's process has a processor.
func (c *caller) turn() {
	w, takes := c.process.world, calling
	if w.host == nil {
		return
	}
	if c.hurries {
		takes = hurrying
	}
	w.await(op{proc: c.process.number, to: "processor", what: "call", order: c.number}, takes, c.refused)
}

// await waits until a process has had the processor for a time.
func (w *World) await(o op, takes time.Duration, yields bool) {
	done := make(chan struct{})
	o.run = func() { w.occupy(o.proc, takes, yields, func() { close(done) }) }
	w.submit(o)
	<-done
}

// late draws when one process is late, or all are. They are so several times in a row, for 50 to
// 400 ms each, with less than a round trip between. Each of them begins at an instant of its own,
// and all end at once.
func (p *Plan) late(dice *rand.Rand) {
	for at := time.Duration(dice.IntN(2)) * calm; at < p.Lasts-2*calm; at += 2*calm + silence + time.Duration(dice.Int64N(int64(calm))) {
		first, n := dice.IntN(p.Procs), 1
		if dice.IntN(2) == 0 {
			first, n = 0, p.Procs
		}
		var row []time.Duration
		ends := at
		for range 1 + dice.IntN(8) {
			lasts := 50*time.Millisecond + time.Duration(dice.Int64N(int64(350*time.Millisecond)))
			row = append(row, lasts)
			ends += lasts + between
		}
		for proc := first; proc < first+n; proc++ {
			begins := at + time.Duration(dice.Int64N(int64(50*time.Millisecond)))
			for i, lasts := range row {
				if i == len(row)-1 {
					lasts = ends - begins
				}
				p.Schedule = append(p.Schedule, fault{at: begins, lasts: lasts, kind: late, proc: proc})
				begins += lasts + between
			}
		}
		p.Hurry = append(p.Hurry, span{at, ends + 8*time.Second/5})
	}
}

// span is a part of a run.
type span struct{ from, to time.Duration }

// hurry calls again at once, from when processes are late until a while later. Only after a
// decision that took no round trip it rests. Most calls look, which leaves the keys with room.
func (c *caller) hurry() {
	w := c.process.world
	now := time.Since(w.start)
	i := slices.IndexFunc(w.plan.Hurry, func(s span) bool { return s.to > now })
	if i < 0 {
		c.pause(w.plan.Lasts - now)
		return
	}
	c.pause(w.plan.Hurry[i].from - now)
	for time.Since(w.start) < w.plan.Hurry[i].to {
		ask := (*caller).peek
		if c.dice.IntN(16) == 0 {
			ask = (*caller).do
		}
		o := ask(c, c.key(), nil)
		if o.decided() && o.d.Source != headgate.FromStore {
			c.pause(10 * time.Millisecond)
		}
		c.refused = strings.Contains(fmt.Sprint(o.err, o.d.Err), "circuit of") // the library lets other processes run
	}
}

// hurriedDecide looks at the calls of those that call again at once.
func (w *World) hurriedDecide() (err error) {
	w.outcomes(func(c *caller, o *outcome) {
		if c.hurries && o.begin.Sub(w.start) >= w.soon() && !w.excused(o) && !o.bounded && !o.decided() && err == nil {
			err = o.at(c)
		}
	})
	return err
}
