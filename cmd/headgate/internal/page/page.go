// Package page writes the report of a replay as one HTML file: static HTML and SVG, without a
// script and without anything from elsewhere.
//
// Its style sheet is the only one that its policy allows, and all else is refused. Each plot has its
// figures as a table, for readers who do not see it.
package page

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"time"

	"github.com/headgate-go/headgate/cmd/headgate/internal/replay"
)

//go:embed page.html
var html string

//go:embed page.css
var css string

var page = template.Must(template.New("page").Parse(html))

// Words are texts of the report as a terminal shows them. They escape what could change a page or
// a terminal: HTML is escaped here.
type Words struct {
	Key     func(string) string         // a key, also a long one
	Name    func(string) string         // a file or a template
	Policy  func(*replay.Policy) string // its name, with its plan
	Percent func(part, whole int64) string
	Sources []string // what was read of each file
}

// view is what the template shows.
type view struct {
	Hash     string
	CSS      template.CSS
	Calls    int64
	Keys     int64
	Key      string
	From, To string
	Step     time.Duration
	Spread   string
	Hashed   bool
	Verdicts []verdict
	Changes  *replay.Changes
	Over     *over
	More     []most
	Sources  []string
	Unknown  []string
}

// verdict is that of one file.
type verdict struct {
	File, How              string
	Denied, Keys           int64
	DeniedShare, KeysShare string
	Notes                  []string
	Policies               []policy
}

// policy is one of a file.
type policy struct {
	*replay.Policy
	Name, Share, KeysShare, Worst string
	Use                           []use
	Most                          []most
}

// use is a bar of the distribution.
type use struct {
	Title, Class string
	Keys         int64
	Width        string
	Limit        bool // it is the first above the limit
}

// most is a key.
type most struct {
	Key           string
	Denied, Calls int64
	Width         string
}

// over are the plots over time.
type over struct {
	Old   bool
	Plots []plot
	Rows  []slot
}

// plot is one of them.
type plot struct {
	Title, Class, Width, From, To string
	Wide                          int
	Most                          int64
	Bars                          []bar
}

// bar is one of a plot, in % of its height.
type bar struct {
	X         int
	Y, Height string
}

// slot is a row of the table.
type slot struct {
	From                  string
	Calls, Denied, Before int64
}

// Write writes the page. hashed is set if keys are.
func Write(w io.Writer, r *replay.Report, hashed bool, words *Words) error {
	sum := sha256.Sum256([]byte(css))
	v := view{
		Hash: "sha256-" + base64.StdEncoding.EncodeToString(sum[:]), CSS: template.CSS(css),
		Calls: r.Calls, Keys: r.Keys, Key: words.Name(r.Key), From: instant(r.From), To: instant(r.To), Hashed: hashed, Changes: r.Changes,
		Sources: words.Sources, Unknown: r.Unknown, Spread: "are spread evenly over it, in their order",
	}
	if r.Within == "start" {
		v.Spread = "are all at its start"
	}
	if r.Step > 1 {
		v.Step = time.Duration(r.Step) * time.Microsecond
	}
	for _, of := range []*replay.Verdict{&r.New, r.Old} {
		if of != nil {
			v.Verdicts = append(v.Verdicts, words.verdict(of, r))
		}
	}
	if r.Changes != nil {
		v.More = words.keys(r.Changes.Most)
	}
	if r.Over != nil {
		v.Over = overTime(r.Over)
	}
	return page.Execute(w, v)
}

func instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// share returns a number of a bar's 100.
func share(part, whole float64) string {
	if part <= 0 || whole <= 0 {
		return "0"
	}
	return fmt.Sprintf("%.2f", max(part/whole*100, 0.5)) // as thin as can be seen
}

func (w *Words) verdict(of *replay.Verdict, r *replay.Report) verdict {
	v := verdict{
		File: w.Name(of.File), How: "each policy by itself, as a shadow", Denied: of.Denied, Keys: of.DeniedKeys,
		DeniedShare: w.Percent(of.Denied, r.Calls), KeysShare: w.Percent(of.DeniedKeys, r.Keys), Notes: of.Notes,
	}
	if of.Enforced {
		v.How = "all policies together, as in force"
	}
	for _, left := range []struct {
		n    int64
		text string
	}{{of.Blocked, "of these calls are blocked by the file"}, {of.Unlimited, "calls have no limit in the file"}, {of.Refused, "calls are wrong, and are not counted: " + cmp.Or(of.Reason, "left out, as keys are hashed")}} {
		if left.n > 0 {
			v.Notes = append(v.Notes[:len(v.Notes):len(v.Notes)], fmt.Sprint(left.n, " ", left.text))
		}
	}
	for i := range of.Policies {
		v.Policies = append(v.Policies, w.policy(&of.Policies[i]))
	}
	return v
}

func (w *Words) policy(p *replay.Policy) policy {
	v := policy{Policy: p, Name: w.Policy(p), Share: w.Percent(p.Denied, p.Calls), KeysShare: w.Percent(p.DeniedKeys, p.Keys), Worst: "-", Most: w.keys(p.Most)}
	if p.Worst != nil {
		v.Worst = fmt.Sprintf("%s (%d)", p.Worst.Start.Format("2006-01-02 15:04Z"), p.Worst.Denied)
	}
	greatest := p.DeniedKeys
	for _, n := range p.Others.Tenths {
		greatest = max(greatest, n)
	}
	add := func(title, class string, n int64, limit bool) {
		v.Use = append(v.Use, use{title, class, n, share(math.Log1p(float64(n)), math.Log1p(float64(greatest))), limit})
	}
	for i, n := range p.Others.Tenths {
		add(fmt.Sprintf("%d to %d %%", i*10, i*10+10), "calls", n, false)
	}
	add("limit: denied", "denied", p.DeniedKeys, true)
	return v
}

func (w *Words) keys(list []replay.Most) (all []most) {
	greatest := int64(0)
	for _, m := range list {
		greatest = max(greatest, m.Denied)
	}
	for _, m := range list {
		all = append(all, most{w.Key(m.Key), m.Denied, m.Calls, share(float64(m.Denied), float64(greatest))})
	}
	return all
}

func overTime(o *replay.OverTime) *over {
	v := &over{Old: o.Before != nil}
	add := func(title, class string, counts []int64) {
		p := plot{Title: title, Class: class, Wide: len(counts), Width: (time.Duration(o.Width) * time.Microsecond).String(), From: instant(o.Start), To: instant(o.Slot(len(counts)))}
		for _, n := range counts {
			p.Most = max(p.Most, n)
		}
		for i, n := range counts {
			if n > 0 {
				height := max(float64(n)/float64(p.Most)*100, 0.5)
				p.Bars = append(p.Bars, bar{i, fmt.Sprintf("%.2f", 100-height), fmt.Sprintf("%.2f", height)})
			}
		}
		v.Plots = append(v.Plots, p)
	}
	add("Calls", "calls", o.Calls)
	add("Denied", "denied", o.Denied)
	if v.Old {
		add("Denied by the old file", "before", o.Before)
	}
	for i := range o.Calls {
		s := slot{From: instant(o.Slot(i)), Calls: o.Calls[i], Denied: o.Denied[i]}
		if v.Old {
			s.Before = o.Before[i]
		}
		v.Rows = append(v.Rows, s)
	}
	return v
}
