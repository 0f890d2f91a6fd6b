package main

import (
	"fmt"
	"runtime"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/peers"
	"github.com/headgate-go/headgate/bench/report"
)

// trial is one workload: who takes part, on which keys, how a turn is measured
// and what is claimed.
type trial struct {
	place   string
	name    string
	about   string
	metrics []report.Metric
	makers  func(*bench) []peers.Maker
	keys    func(*bench) load.Keys
	limit   peers.Limit // Roomy where it is zero
	fill    int         // callers that fill the keys first; 0: they are not filled
	stored  string      // what is filled, where the makers' names don't say it
	life    life
	runs    int // at most so many, where one takes long or all are alike; 0: as told
	often   int // so many for each that is told, where they are short; 0: one
	turn    func(*bench, *guest) (figures, error)
}

// life is how long a subject lives.
type life uint8

const (
	kept  life = iota // for the whole workload, as in a service
	fresh             // for one turn: the heap of one is no load to another
	own               // the turn makes it
)

// guest is a subject in a workload.
type guest struct {
	peers.Maker
	*peers.Subject
	keys  load.Keys
	limit peers.Limit
	run   int
}

// figures are what one turn gave, by metric, and the share of its calls that
// were not decided.
type figures struct {
	by     map[string]float64
	failed float64
}

// run measures a workload: all subjects in turn, as often as told.
func (b *bench) run(t trial) ([]*report.Table, error) {
	b.progress("%s …", t.name)
	if t.place == memory {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(memoryCallers))
	}
	guests, err := b.invite(t)
	if err != nil {
		return nil, err
	}
	seen := make([][]figures, len(guests))
	for run := range t.times(b.runs) {
		for i := range guests {
			guests[i].run = run
			f, err := b.turn(t, &guests[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", guests[i].Name, err)
			}
			seen[i] = append(seen[i], f)
		}
	}
	for _, g := range guests {
		if g.Subject != nil {
			g.Close()
		}
	}
	return tables(t, guests, seen), nil
}

func (t trial) times(told int) int {
	if t.runs > 0 {
		told = min(t.runs, told)
	}
	return told * max(t.often, 1)
}

// invite makes the subjects, each checked first.
func (b *bench) invite(t trial) ([]guest, error) {
	limit := t.limit
	if limit.Burst == 0 {
		limit = peers.Roomy
	}
	keys := t.keys(b)
	var guests []guest
	for _, m := range t.makers(b) {
		if err := peers.Check(m, limiters(t.place), "check:"+t.name+m.Name); err != nil {
			return nil, err
		}
		g := guest{Maker: m, keys: keys, limit: limit}
		if t.life == kept {
			if err := b.seat(t, &g); err != nil {
				return nil, err
			}
		}
		guests = append(guests, g)
	}
	return guests, nil
}

// limiters is how many of them have to agree on one count.
func limiters(place string) int {
	if place == memory {
		return 1
	}
	return 2
}

// seat makes a subject and fills its keys, unless a server still has them.
func (b *bench) seat(t trial, g *guest) (err error) {
	if g.Subject, err = g.Make(g.limit); err != nil {
		return fmt.Errorf("%s: %w", g.Name, err)
	}
	has := fmt.Sprint(t.place, g.Name, t.stored, len(g.keys.Names()))
	if t.fill == 0 || b.filled[has] {
		return nil
	}
	b.filled[has] = t.place != memory
	if err := load.Fill(t.fill, g.keys, g.Fill); err != nil {
		return fmt.Errorf("%s: %w", g.Name, err)
	}
	return nil
}

func (b *bench) turn(t trial, g *guest) (figures, error) {
	if t.life == fresh {
		if err := b.seat(t, g); err != nil {
			return figures{}, err
		}
		defer func() {
			g.Close()
			g.Subject = nil
			runtime.GC()
		}()
	}
	runtime.GC()
	return t.turn(b, g)
}

func tables(t trial, guests []guest, seen [][]figures) []*report.Table {
	var all []*report.Table
	for _, m := range t.metrics {
		table := &report.Table{Place: t.place, Workload: t.name, About: t.about, Metric: m}
		for i, g := range guests {
			row := report.Row{Subject: g.Name, Ours: g.Kind == peers.Ours, Peer: g.Kind == peers.Peer}
			for _, f := range seen[i] {
				row.Runs = append(row.Runs, f.by[m.Name])
				row.Failed = max(row.Failed, f.failed)
			}
			table.Rows = append(table.Rows, row)
		}
		all = append(all, table)
	}
	return all
}

// passing is the sample's share of undecided calls, and an error if calls were
// denied where all should have passed: a denial is cheaper than a pass.
func passing(s *load.Sample) (float64, error) {
	if n := s.Count[load.Denied]; n > 0 {
		return 0, fmt.Errorf("%d calls were denied where all should pass: use fewer or shorter runs", n)
	}
	return s.Failed(), nil
}
