package report

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
)

// Report is all that one run of the benchmark saw.
type Report struct {
	Machine []Fact // machine, versions, command, date
	Modules []Fact
	Tables  []*Table
	Notes   []string // what the run noticed about itself
}

// Fact is a name and what it is.
type Fact struct{ Name, Value string }

// The document's text is in the template, separate from the code, so that it reads
// as a text. docs/benchmarks.md is generated, never edited.
//
//go:embed benchmarks.md.tmpl
var text string

var document = template.Must(template.New("benchmarks").Funcs(template.FuncMap{
	"figure": Figure,
	"own":    func(subject string) string { return strings.TrimPrefix(subject, "headgate, ") },
	"unit": func(t *Table) string {
		return strings.Replace(t.Name+", "+t.Unit, ", per second", "/s", 1)
	},
}).Parse(text))

// Markdown writes docs/benchmarks.md.
func (r *Report) Markdown(w io.Writer) error { return document.Execute(w, r) }

// Verdicts are those of all tables.
func (r *Report) Verdicts() []Verdict {
	var all []Verdict
	for _, t := range r.Tables {
		all = append(all, t.Verdicts()...)
	}
	return all
}

// Held is the number of targets that hold. Published ratios are not among them.
func (r *Report) Held() int {
	return r.count(func(v Verdict) bool { return v.Holds && !v.Published })
}

// Claimed is how many targets there are.
func (r *Report) Claimed() int { return r.count(func(v Verdict) bool { return !v.Published }) }

func (r *Report) count(which func(Verdict) bool) (n int) {
	for _, v := range r.Verdicts() {
		if which(v) {
			n++
		}
	}
	return n
}

// Section is what the document shows under one heading. Verdicts keep the order
// in which the workloads ran.
type Section struct {
	Place    string
	Verdicts []Verdict
}

// Sections are the tables by place, in the order in which they were measured.
func (r *Report) Sections() []Section {
	var all []Section
	for _, t := range r.Tables {
		i := slices.IndexFunc(all, func(s Section) bool { return s.Place == t.Place })
		if i < 0 {
			i = len(all)
			all = append(all, Section{Place: t.Place})
		}
		all[i].Verdicts = append(all[i].Verdicts, t.Verdicts()...)
	}
	return all
}

// Lines are the verdicts by table and subject: one line of the document each.
func (s Section) Lines() (all [][]Verdict) {
	for _, v := range s.Verdicts {
		if n := len(all); n > 0 && all[n-1][0].Table == v.Table && all[n-1][0].Of == v.Of {
			all[n-1] = append(all[n-1], v)
		} else {
			all = append(all, []Verdict{v})
		}
	}
	return all
}

// Text writes a table for the terminal.
func (t *Table) Text(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s (%s)\n", t.Workload, t.Name, t.Unit)
	for _, r := range t.Rows {
		fmt.Fprintf(w, "  %-24s %14s   %-28s %8s  %s\n", r.Subject, Figure(r.Median()), spread(r), ratio(t, r), failed(t, r))
	}
	for _, v := range t.Verdicts() {
		claim := strings.TrimSuffix(v.Of+" / "+v.Against(), " / ")
		fmt.Fprintf(w, "  %s: %s %s, %s\n", claim, Figure(v.Figure), v.Bounded(), v.Says())
	}
}

// spread is the least and the greatest turn, for the terminal: a wide one is a
// busy machine.
func spread(r Row) string {
	if len(r.Runs) == 0 {
		return ""
	}
	return Figure(slices.Min(r.Runs)) + " … " + Figure(slices.Max(r.Runs))
}

// ratio is Headgate's first row to this one.
func ratio(t *Table, r Row) string {
	x, ok := t.ratio(r)
	if !ok {
		return ""
	}
	return Figure(x) + "×"
}

// failed is shown in tables where any call failed.
func failed(t *Table, r Row) string {
	if !slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Failed > 0 }) {
		return ""
	}
	return strings.TrimSpace(percent(r.Failed) + " undecided")
}
