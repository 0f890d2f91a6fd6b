package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate-go/headgate/cmd/headgate/internal/logs"
	"github.com/headgate-go/headgate/cmd/headgate/internal/replay"
)

// printReport returns the text of a report.
func printReport(r *replay.Report) func(w *tabwriter.Writer) {
	return func(w *tabwriter.Writer) {
		for i := range r.Sources {
			printSource(w, &r.Sources[i])
		}
		fmt.Fprintf(w, "%d calls of %d keys (%s)", r.Calls, r.Keys, printable(r.Key))
		if r.Calls > 0 {
			fmt.Fprintf(w, ", %s to %s", r.From.Format(time.RFC3339), r.To.Format(time.RFC3339))
		}
		fmt.Fprintln(w)
		printStep(w, r.Step, r.Within)
		printVerdict(w, &r.New, r.Calls, r.Keys)
		if r.Old != nil {
			printVerdict(w, r.Old, r.Calls, r.Keys)
			printChanges(w, r)
		}
		fmt.Fprintln(w, "\nA log can't tell:")
		for _, text := range r.Unknown {
			fmt.Fprintln(w, "- "+text)
		}
	}
}

// printSource prints what was read of a file.
func printSource(w *tabwriter.Writer, s *logs.Source) {
	fmt.Fprintf(w, "%s: %s, %d lines, %d calls\n", fileTitle(s.File), s.Format, s.Lines, s.Calls)
	for _, left := range []struct {
		n    int64
		text string
	}{
		{s.Unreadable, "%d lines could not be read:"},
		{s.Keyless, "%d calls have no key, and are left out"},
		{s.Late, fmt.Sprintf("%%d calls are older than lines before them by up to %v, and are left out: -unsorted allows more", micro(s.Behind))},
		{s.Zoneless, "%d times have no zone, and are of " + printable(s.Zone) + ": -zone names another"},
		{s.Repeated, "%d times lie in an hour that occurs twice: the first one is meant, unless lines before are later"},
	} {
		if left.n > 0 {
			fmt.Fprintf(w, "  "+left.text+"\n", left.n)
		}
	}
	for _, b := range s.First {
		fmt.Fprintf(w, "  line %d: %s: %+q\n", b.Line, b.Reason, cut(b.Text, 80))
	}
}

// fileTitle returns the name of a log for a terminal.
func fileTitle(file string) string {
	if file == logs.Stdin {
		return logs.Title(file)
	}
	return printable(file)
}

func micro(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// cut returns the begin of a text.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:most]
}

// printStep prints how fine the log's clock is, and what that makes of the figures.
func printStep(w *tabwriter.Writer, step int64, within string) {
	if step <= 1 {
		return
	}
	how := "are spread evenly over it, in their order"
	if within == "start" {
		how = "are all at its start"
	}
	fmt.Fprintf(w, "the clock of the log has steps of %v: calls of one step %s\n", micro(step), how)
}

func printVerdict(w *tabwriter.Writer, v *replay.Verdict, calls, keys int64) {
	how := "each policy by itself, as a shadow"
	if v.Enforced {
		how = "all policies together, as in force"
	}
	fmt.Fprintf(w, "\n%s would deny %d calls (%s), %d keys (%s); %s\n",
		printable(v.File), v.Denied, percent(v.Denied, calls), v.DeniedKeys, percent(v.DeniedKeys, keys), how)
	if v.Blocked > 0 {
		fmt.Fprintf(w, "%d of these calls are blocked by the file\n", v.Blocked)
	}
	if v.Unlimited > 0 {
		fmt.Fprintf(w, "%d calls have no limit in the file\n", v.Unlimited)
	}
	if v.Refused > 0 {
		fmt.Fprintf(w, "%d calls are wrong, and are not counted: %s\n", v.Refused, v.Reason)
	}
	for _, n := range v.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	row(w, "POLICY", "ALGORITHM", "CALLS", "DENIED", "", "KEYS", "DENIED", "", "WORST MINUTE")
	for i := range v.Policies {
		p := &v.Policies[i]
		worst := "-"
		if p.Worst != nil {
			worst = fmt.Sprintf("%s (%d)", p.Worst.Start.Format("2006-01-02 15:04Z"), p.Worst.Denied)
		}
		row(w, title(p), p.Algorithm, p.Calls, p.Denied, percent(p.Denied, p.Calls), p.Keys, p.DeniedKeys, percent(p.DeniedKeys, p.Keys), worst)
	}
	for i := range v.Policies {
		printPolicy(w, &v.Policies[i])
	}
}

func title(p *replay.Policy) string {
	name := p.Policy
	if p.Plan != "" {
		name = printable(p.Plan) + "/" + name
	}
	if p.Tenant != "" {
		name = printable(p.Tenant) + "/" + name
	}
	if p.Shadow {
		name += " (shadow)"
	}
	return name
}

// printPolicy prints who is denied, and how near the others came.
func printPolicy(w *tabwriter.Writer, p *replay.Policy) {
	fmt.Fprintf(w, "\n%s: the %d other keys used at most, in %% of the limit: p50 %.1f, p90 %.1f, p99 %.1f, max %.1f\n",
		title(p), p.Others.Keys, p.Others.P50, p.Others.P90, p.Others.P99, p.Others.Max)
	if p.Denied == 0 {
		return
	}
	if p.Within > 0 {
		fmt.Fprintf(w, "%d of its denials are uncertain: the calls would have passed less than one step of the log's clock later.\n", p.Within)
		fmt.Fprintln(w, "If the log has milliseconds, do nothing. A log in whole seconds makes bursts look denser: in force, fewer calls may be denied.")
	}
	printMost(w, p.Most, p.DeniedKeys, true)
}

// printMost prints the first of that many keys.
func printMost(w *tabwriter.Writer, list []replay.Most, keys int64, calls bool) {
	_ = w.Flush() // or these cells would be as wide as those above
	for i, m := range list {
		cells := []any{"  " + key(m.Key), m.Denied}
		if calls {
			cells = append(cells, fmt.Sprintf("of %d", m.Calls), percent(m.Denied, m.Calls))
		}
		if i == 0 {
			heads := []any{"  MOST DENIED", "DENIED", "CALLS", ""}
			row(w, heads[:len(cells)]...)
		}
		row(w, cells...)
	}
	_ = w.Flush()
	if more := keys - int64(len(list)); more > 0 {
		fmt.Fprintf(w, "  and %d more: -n lists more than %d\n", more, len(list))
	}
}

// key returns a key for a terminal, cut at 80 bytes.
func key(k string) string {
	if text := printable(cut(k, 80)); len(k) <= 80 {
		return text
	} else {
		return text + fmt.Sprintf("… (%d bytes)", len(k))
	}
}

func printChanges(w *tabwriter.Writer, r *replay.Report) {
	c := r.Changes
	fmt.Fprintf(w, "\n%s against %s: %d calls more are denied, %d no longer; %d keys are denied that were not, %d no longer\n",
		printable(r.New.File), printable(r.Old.File), c.MoreDenied, c.LessDenied, c.NewKeys, c.FreedKeys)
	printMost(w, c.Most, c.MoreKeys, false)
}

// percent returns a part with as many digits as a small one needs.
func percent(part, whole int64) string {
	if part == 0 || whole == 0 {
		return "0 %"
	}
	p := float64(part) / float64(whole) * 100
	digits := 1
	if p < 0.1 {
		digits = 4
	}
	return cmp.Or(strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.*f", digits, p), "0"), "."), "0") + " %"
}
