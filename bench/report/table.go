// Package report turns what was measured into verdicts, a document and
// pictures.
package report

import (
	"math"
	"slices"
	"strings"
)

// Table is one metric of one workload.
type Table struct {
	Place    string // the section: "memory", "redis" …
	Workload string
	About    string
	Metric
	Rows []Row
}

// Metric is what was measured, and what is claimed of it.
type Metric struct {
	Name    string
	Unit    string
	Lower   bool   // less is better
	Chart   string // the picture it is drawn in; none if empty
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

// Median is the middle run's figure; of an even number the mean of the two.
func (r Row) Median() float64 {
	if len(r.Runs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(r.Runs))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Target is a claim: the ratio of Of's median to Against's is at least, or at
// most, Bound. Fastest stands for the best peer; without Against the figure
// itself is held against Bound.
type Target struct {
	Of, Against string
	AtLeast     bool
	Bound       float64
}

// Fastest is the peer with the best median.
const Fastest = "fastest peer"

// Verdict is a target with what came out.
type Verdict struct {
	Target
	Table  *Table
	Peer   string // whom Fastest turned out to be
	Figure float64
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

func (t *Table) judge(target Target) (Verdict, bool) {
	v := Verdict{Target: target, Table: t, Peer: target.Against}
	own, ok := t.row(target.Of)
	if !ok {
		return v, false
	}
	v.Figure = own.Median()
	if target.Against != "" {
		other, ok := t.against(target.Against)
		if !ok || other.Median() == 0 {
			return v, false
		}
		v.Peer = other.Subject
		v.Figure /= other.Median()
	}
	v.Holds = v.Figure <= target.Bound
	if target.AtLeast {
		v.Holds = v.Figure >= target.Bound
	}
	v.Holds = v.Holds && own.Failed <= tolerated
	return v, true
}

func (t *Table) row(subject string) (Row, bool) {
	i := slices.IndexFunc(t.Rows, func(r Row) bool { return r.Subject == subject })
	if i < 0 {
		return Row{}, false
	}
	return t.Rows[i], true
}

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

// Claim is the target in words.
func (v Verdict) Claim() string {
	var b strings.Builder
	b.WriteString(v.Of)
	if v.Against != "" {
		b.WriteString(" / " + v.Against)
	}
	if v.Against == Fastest {
		b.WriteString(" (" + v.Peer + ")")
	}
	if v.AtLeast {
		return b.String() + " ≥ " + Figure(v.Bound)
	}
	return b.String() + " ≤ " + Figure(v.Bound)
}

// Says is what came out, in words.
func (v Verdict) Says() string {
	if v.Holds {
		return "holds"
	}
	if r, _ := v.Table.row(v.Of); r.Failed > tolerated {
		return "does not hold (calls failed)"
	}
	return "does not hold"
}
