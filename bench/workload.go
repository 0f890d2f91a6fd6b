package main

import (
	"fmt"
	"runtime"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/peers"
	"github.com/headgate-go/headgate/bench/report"
)

// workload is who takes part, on which keys, how a turn is measured, and what
// is claimed. It is data: memory.go, redis.go, cluster.go and latency.go list
// theirs, and run treats them alike.
type workload struct {
	place     string // the section of the document
	name      string
	subjects  makers
	keys      string // as load.Named takes it
	limit     peers.Limit
	processes int // of a fleet; 0 is this one
	callers   int // in each process
	policies  int
	fill      int // callers that fill the keys first; 0: they are not filled
	life      life
	runs      int // turns of each subject, for each that the flags ask for; 0: one
	turn      turn
	metrics   []report.Metric
}

// makers is called when the workload runs, not before, since it starts servers.
// A turn measures one subject once.
type (
	makers func(*bench) []peers.Maker
	turn   func(*bench, *subject) (figures, error)
)

// life is how long a subject lives. On Redis it is kept: clients and scripts
// are in place as in a service. In memory it is made anew for each turn, since
// two filled stores would share the caches and the collector's work.
type life uint8

const (
	kept  life = iota // for the whole workload, as in a service
	fresh             // for one turn: the heap of one is no load to another
	own               // the turn makes it
)

// subject is a limiter that takes part in a workload. Its Subject is nil
// between turns where life is not kept.
type subject struct {
	peers.Maker
	*peers.Subject
	workload
	names load.Keys
	run   int
}

// figures are what one turn gave, by metric, and the share of its calls that
// were not decided.
type figures struct {
	by     map[string]float64
	failed float64
}

// run measures a workload: all subjects by turns, so that drift of the machine
// affects all of them. In memory it runs on as many processors as callers,
// whatever the machine has, so that figures of two machines mean the same.
func (b *bench) run(w workload) ([]*report.Table, error) {
	b.progress("%s …", w.name)
	if w.place == memory {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(memoryCallers))
	}
	all, err := b.prepare(w)
	if err != nil {
		return nil, err
	}
	seen := make([][]figures, len(all))
	for run := range w.times(b.runs) {
		for i := range all {
			all[i].run = run
			f, err := b.turn(&all[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all[i].Name, err)
			}
			seen[i] = append(seen[i], f)
		}
	}
	for _, s := range all {
		s.release()
	}
	return tables(w, all, seen), nil
}

func (w workload) times(asked int) int { return asked * max(w.runs, 1) }

// prepare makes the subjects, each checked first. On Redis a fleet's keys are
// filled from here; what the children do must not include it.
func (b *bench) prepare(w workload) ([]subject, error) {
	names := load.Named(w.keys, b.number(w))
	var all []subject
	for _, m := range w.subjects(b) {
		if err := peers.Check(m, limiters(w.place), "check:"+w.name+m.Name); err != nil {
			return nil, err
		}
		s := subject{Maker: m, workload: w, names: names}
		if w.life == kept || w.life == own && w.fill > 0 {
			if err := b.fill(&s); err != nil {
				return nil, err
			}
		}
		if w.life == own {
			s.release()
		}
		all = append(all, s)
	}
	return all, nil
}

// number is how many keys a workload has, if not one.
func (b *bench) number(w workload) int {
	if w.place == memory {
		return b.many
	}
	return b.keys
}

// crowd is a workload's number of callers in each process.
func (b *bench) crowd(w workload) int { return min(w.callers, b.most) }

// limiters is how many of them have to agree on one count: on Redis two, to
// show that the count is shared.
func limiters(place string) int {
	if place == memory {
		return 1
	}
	return 2
}

// fill makes a subject and fills its keys, unless a server still has them.
func (b *bench) fill(s *subject) (err error) {
	if s.Subject, err = s.Make(s.limit); err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	where := s.place
	if where == latency {
		where = server // the same one
	}
	has := fmt.Sprint(where, s.Name, s.policies, len(s.names.Names()))
	if s.workload.fill == 0 || b.filled[has] {
		return nil
	}
	b.filled[has] = where != memory
	if err := load.Fill(s.workload.fill, s.names, s.Fill); err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	return nil
}

// release may be called twice.
func (s *subject) release() {
	if s.Subject != nil {
		s.Close()
		s.Subject = nil
	}
}

// turn measures a subject once, after a collection: no subject pays for the
// garbage of the one before it.
func (b *bench) turn(s *subject) (figures, error) {
	if s.life == fresh {
		if err := b.fill(s); err != nil {
			return figures{}, err
		}
		defer s.release()
	}
	runtime.GC()
	return s.workload.turn(b, s)
}

// tables has a row per subject. The worst turn's share of failures counts,
// since one bad turn may set a median.
func tables(w workload, all []subject, seen [][]figures) []*report.Table {
	var tables []*report.Table
	for _, m := range w.metrics {
		table := &report.Table{Place: w.place, Workload: w.name, Metric: m}
		for i, s := range all {
			row := report.Row{Subject: s.Name, Ours: s.Kind == peers.Ours, Peer: s.Kind == peers.Peer}
			for _, f := range seen[i] {
				row.Runs = append(row.Runs, f.by[m.Name])
				row.Failed = max(row.Failed, f.failed)
			}
			table.Rows = append(table.Rows, row)
		}
		tables = append(tables, table)
	}
	return tables
}

// closed measures callers in closed loops in this process.
func closed(b *bench, s *subject) (figures, error) {
	sample := load.Closed{Callers: b.crowd(s.workload), For: b.length}.Run(s.names, s.Allow)
	failed, err := s.undecided(&sample)
	return figures{map[string]float64{
		decisions:   sample.Rate(),
		allocations: float64(sample.Mallocs) / sample.Decisions(),
	}, failed}, err
}

// undecided is the sample's share of undecided calls, and an error if calls
// were denied where all should have passed. A denial is cheaper than a pass.
func (s *subject) undecided(sample *load.Sample) (float64, error) {
	if n := sample.Count[load.Denied]; n > 0 && s.limit == peers.Roomy {
		return 0, fmt.Errorf("%d calls were denied where all should pass: use fewer or shorter runs", n)
	}
	return sample.Failed(), nil
}
