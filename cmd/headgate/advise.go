package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate-go/headgate/cmd/headgate/internal/advise"
	"github.com/headgate-go/headgate/cmd/headgate/internal/logs"
	"github.com/headgate-go/headgate/cmd/headgate/internal/replay"
)

const adviceOf = `
It prints a policy file with a policy for each algorithm and period. Each has the strictest limit that
denies no more than -deny or -keys, if it is the only one: keep one of them. A comment has the largest
limit that denies the same keys. headgate replay shows which calls and keys it would have denied.

	headgate advise -per 1m,1h -deny 0.1% -log access.log > limits.yaml
	headgate replay -policies limits.yaml -log access.log

A token bucket has the fixed window's limit as its rate, and the smallest burst. With costs above 1
a larger limit may deny more calls: limits are tried from the greatest on, in steps of 10 % and
then of 1 %.
Logs and fields are those of headgate replay: see headgate help replay.
`

// adviseLogs finds limits for the calls of logs.
func adviseLogs(ctx context.Context, s *session, files []string) error {
	from, err := s.logged(files)
	if err != nil {
		return misuse{err}
	}
	opts, err := s.advised(&from)
	if err != nil {
		return misuse{err}
	}
	stream, err := s.openLogs(from)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	defer debug.SetGCPercent(debug.SetGCPercent(replay.GCPercent))
	report, err := advise.Run(ctx, stream, opts)
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case err != nil:
		return err
	case empty(report.Sources):
		return errors.New("no advice: the log is empty")
	case report.Calls == 0:
		return errors.New("no advice: no line of the log is a call with a key")
	}
	return s.print(report, func(w *tabwriter.Writer) { printAdvice(w, report) })
}

// advised returns the options that the flags set.
func (s *session) advised(from *logs.Options) (opts advise.Options, err error) {
	r := &s.replay
	opts = advise.Options{Keys: r.keys, Percent: -1}
	switch {
	case r.keys >= 0 && r.deny != "":
		return opts, errors.New("-deny and -keys: want one of them")
	case r.keys < 0:
		if opts.Percent, err = percentage(r.deny); err != nil {
			return opts, err
		}
	}
	if opts.Per, err = periods(r.per); err != nil {
		return opts, err
	}
	switch n, err := strconv.ParseInt(s.cost, 10, 64); {
	case err == nil && n > 0:
		opts.Cost = n
	case err == nil || errors.Is(err, strconv.ErrRange) || s.cost == "" || strings.ContainsAny(s.cost, ",="):
		return opts, fmt.Errorf("-cost %s: want units above 0, or a field of the log", printable(s.cost))
	default:
		from.Costs = []string{s.cost}
	}
	return opts, opts.Check()
}

// percentage reads -deny.
func percentage(text string) (float64, error) {
	if text == "" {
		text = "0.1%"
	}
	number, ok := strings.CutSuffix(text, "%")
	p, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	//mutant:percent-in-range
	if !ok && p != 0 || err != nil || !(p >= 0 && p < 100) {
		return 0, fmt.Errorf("-deny %s: want percent of the calls, such as 0.1%%", printable(text))
	}
	return p, nil
}

// periods reads -per.
func periods(words []string) (all []time.Duration, err error) {
	if len(words) == 0 {
		words = []string{"1m,1h"}
	}
	seen := map[time.Duration]bool{}
	for _, word := range strings.Split(strings.Join(words, ","), ",") {
		d, err := time.ParseDuration(word)
		if err != nil {
			return nil, fmt.Errorf("-per %s: want periods, such as 1m,1h", printable(word))
		}
		if !seen[d] {
			all = append(all, d)
		}
		seen[d] = true
	}
	return all, nil
}

// printAdvice prints a policy file, with all else as comments.
func printAdvice(w *tabwriter.Writer, r *advise.Report) {
	var b bytes.Buffer
	notes := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i := range r.Sources {
		printSource(notes, &r.Sources[i])
	}
	fmt.Fprintf(notes, "%d calls of %d keys (%s), %s to %s\n", r.Calls, r.Keys, printable(r.Key), r.From.Format(time.RFC3339), r.To.Format(time.RFC3339))
	printStep(notes, r.Step, r.Within)
	what := "no key"
	switch {
	case r.May != nil && *r.May > 0:
		what = fmt.Sprintf("no more than %d keys", *r.May)
	case r.Percent != nil:
		what = fmt.Sprintf("no more than %v %% of the calls", *r.Percent)
	}
	fmt.Fprintf(notes, "Each limit is the strictest that denies %s, as the only limit. Keep one.\n", what)
	if r.Scanned {
		fmt.Fprintln(notes, "Calls cost more than 1, so a larger limit may deny more: limits were tried from the greatest on, in steps of 10 % and then of 1 %.")
	}
	for _, text := range r.Unknown {
		fmt.Fprintln(notes, "A log can't tell: "+text+".")
	}
	_ = notes.Flush()
	for line := range strings.Lines(b.String()) {
		fmt.Fprint(w, "# "+line)
	}
	fmt.Fprintln(w, "policies:")
	for i := range r.Advice {
		printLimit(w, r, &r.Advice[i])
	}
}

// printLimit prints one policy.
func printLimit(w *tabwriter.Writer, r *advise.Report, v *advise.Advice) {
	//mutant:no-limit-no-policy
	if v.Refused != "" {
		fmt.Fprintf(w, "  # %s: no limit, since %s\n", v.Policy, v.Refused)
		return
	}
	if per, err := time.ParseDuration(v.Period); err == nil && r.To.Sub(r.From) < per {
		fmt.Fprintf(w, "  # The log is %v long, shorter than the period: a whole period may have more calls.\n", r.To.Sub(r.From).Round(time.Second))
	}
	burst := ""
	if v.Burst > 0 {
		burst = fmt.Sprintf(", burst: %d", v.Burst)
	}
	fmt.Fprintf(w, "  # denies %d of %d calls (%s), by %d keys\n", v.Denied, r.Calls, percent(v.Denied, r.Calls), v.Keys)
	printMargin(w, v)
	fmt.Fprintf(w, "  %s: {algorithm: %s, limit: %d, period: %s%s, on-failure: open}\n", v.Policy, v.Algorithm, v.Limit, v.Period, burst)
}

// printMargin prints which limits, or bursts, deny the same keys.
func printMargin(w *tabwriter.Writer, v *advise.Advice) {
	what, from := "limit", v.Limit
	if v.Burst > 0 {
		what, from = "burst", v.Burst
	}
	keys := fmt.Sprintf("the same %d keys are", v.Keys)
	if v.Keys == 1 {
		keys = "the same key is"
	}
	switch {
	case v.Keys == 0:
	case v.Same == from:
		fmt.Fprintf(w, "  # with a %s of %d fewer keys are denied\n", what, from+1)
	default:
		fmt.Fprintf(w, "  # with a %s from %d to %d %s denied\n", what, from, v.Same, keys)
	}
}
