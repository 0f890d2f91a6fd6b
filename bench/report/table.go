// Package report turns what was measured into verdicts and a document.
package report

import (
	"math"
	"slices"
)

// Table is one metric of one workload: a row per subject. A workload with two
// metrics has two tables.
type Table struct {
	Place    string // the section: "memory", "redis" …
	Workload string
	Metric
	Rows []Row
}

// Metric is what was measured, and what is claimed of it.
type Metric struct {
	Name    string
	Unit    string
	Lower   bool // less is better
	Targets []Target
}

// Row is one subject's: its figure in each run.
type Row struct {
	Subject string
	Ours    bool
	Peer    bool // neither Headgate nor a floor
	Runs    []float64
	Failed  float64 // share of the calls that got no decision, the worst run's
}

// Median is the middle turn's figure; of an even number of turns the mean of
// the two in the middle. A mean of all would take in each pause of the host.
func (r Row) Median() float64 {
	if len(r.Runs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(r.Runs))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Target is a claim: the ratio of Of's median to Against's is at least, or at
// most, Bound. Fastest stands for the best peer; without Against the figure
// itself is held against Bound. A Published ratio is shown and has no bound.
type Target struct {
	Of, Against string
	AtLeast     bool
	Bound       float64
	Published   bool
}

// Fastest is the peer with the best median.
const Fastest = "fastest peer"

// Verdict is a target with what came out.
type Verdict struct {
	Target
	Table  *Table
	Own    Row
	Peer   Row     // the subject of Against; Fastest is resolved
	Figure float64 // the ratio, or Own's median where there is no peer
	Holds  bool
}

// tolerated is the share of undecided calls above which a figure proves nothing.
const tolerated = 0.001

// Verdicts are the targets whose subjects were all measured.
func (t *Table) Verdicts() []Verdict {
	var all []Verdict
	for _, target := range t.Targets {
		if v, ok := t.judge(target); ok {
			all = append(all, v)
		}
	}
	return all
}

// judge is false where a subject of the target was not measured. A figure of 0
// has no ratio.
func (t *Table) judge(target Target) (Verdict, bool) {
	v := Verdict{Target: target, Table: t}
	var ok bool
	if v.Own, ok = t.row(target.Of); !ok {
		return v, false
	}
	v.Figure = v.Own.Median()
	if target.Against != "" {
		if v.Peer, ok = t.against(target.Against); !ok || v.Peer.Median() == 0 {
			return v, false
		}
		v.Figure /= v.Peer.Median()
	}
	v.Holds = v.Figure <= target.Bound
	if target.AtLeast {
		v.Holds = v.Figure >= target.Bound
	}
	v.Holds = (v.Holds || v.Published) && v.Own.Failed <= tolerated
	return v, true
}

func (t *Table) row(subject string) (Row, bool) {
	i := slices.IndexFunc(t.Rows, func(r Row) bool { return r.Subject == subject })
	if i < 0 {
		return Row{}, false
	}
	return t.Rows[i], true
}

// against resolves Fastest. Only peers are candidates: a floor limits nothing.
func (t *Table) against(subject string) (Row, bool) {
	if subject != Fastest {
		return t.row(subject)
	}
	var best Row
	for _, r := range t.Rows {
		better := r.Median() > best.Median()
		if t.Lower {
			better = r.Median() < best.Median()
		}
		if r.Peer && (best.Subject == "" || better) {
			best = r
		}
	}
	return best, best.Subject != ""
}

// ratio is the first own row's median to r's, false where there is none.
func (t *Table) ratio(r Row) (float64, bool) {
	i := slices.IndexFunc(t.Rows, func(r Row) bool { return r.Ours })
	if i < 0 || r.Ours || r.Median() == 0 {
		return 0, false
	}
	x := t.Rows[i].Median() / r.Median()
	return x, !math.IsInf(x, 0) && !math.IsNaN(x)
}

// Bounded is the target as the document shows it.
func (v Verdict) Bounded() string {
	switch {
	case v.Published:
		return "–"
	case v.AtLeast:
		return "≥ " + Figure(v.Bound)
	}
	return "≤ " + Figure(v.Bound)
}

// Against names the peer, and the share of its calls that got no decision.
func (v Verdict) Against() string {
	name := v.Peer.Subject
	if v.Target.Against == Fastest {
		name = "fastest peer: " + name
	}
	if v.Peer.Failed > tolerated {
		name += " (" + percent(v.Peer.Failed) + " undecided)"
	}
	return name
}

// Says is what came out, in words.
func (v Verdict) Says() string {
	switch {
	case v.Own.Failed > tolerated:
		return "**does not hold** (" + percent(v.Own.Failed) + " undecided)"
	case v.Published:
		return "published"
	case v.Holds:
		return "holds"
	}
	return "**does not hold**"
}
