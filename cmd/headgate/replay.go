package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/cmd/headgate/internal/logs"
	"github.com/headgate-go/headgate/cmd/headgate/internal/replay"
)

const replayOf = `
It reads logs in the Common and the Combined format, JSON lines (Caddy, Traefik, Envoy, slog and
others) and CSV, also of gzip and zstd, and without -log the standard input. Fields have these names
in all formats: remote, user, host, method, path, uri, status, bytes, agent, referer, header:NAME.
Others have the log's own: of JSON a.b is b in the object a; of a Combined log extra1 is the first
field after the agent, and rt the one that begins with rt=.

Each policy is decided by itself under the log's clock, as a service with shadow: true would have
decided it. -enforce decides as the file does in force: a call that one policy denies is charged to none.
`

// replaying are the flags of replay.
type replaying struct {
	against, format, at, duration, zone, within string
	deny, html                                  string
	keys                                        int64
	files, per                                  []string
	unsorted                                    time.Duration
	maxKeys, most                               int
	enforce, hash                               bool
}

// flags defines those that no other command has.
func (r *replaying) flags(f *flag.FlagSet) {
	list := func(to *[]string) func(string) error {
		return func(text string) error {
			*to = append(*to, text)
			return nil
		}
	}
	f.Func("against", "replay: a second policy `file`, such as the one in force; the report has the differences", once(&r.against))
	f.Func("log", "replay, advise: a log `file`, - for the standard input; also several, which are merged by time", list(&r.files))
	f.StringVar(&r.format, "format", "", "replay, advise: the format of the logs: "+logs.Formats+" (default a guess)")
	f.StringVar(&r.at, "at", "", "replay, advise: the `field` of the time (default the format's own)")
	f.StringVar(&r.duration, "duration", "", "replay, advise: the `field` of how long a call took, as request_time:s; the log's times are those of the end then,\nand the begin is reckoned; units: s, ms, us, ns")
	f.StringVar(&r.zone, "zone", "", "replay, advise: the zone of times that name none, as Europe/Berlin (default UTC)")
	f.StringVar(&r.within, "within", "second", "replay, advise: second spreads the calls of one instant over the step of the log's clock in their order,\nstart puts all at its start")
	f.DurationVar(&r.unsorted, "unsorted", 0, "replay, advise: how much before the newest line of its file a line may be, at most 24h (default 10s; 1m with -duration);\nolder ones are left out and counted")
	f.Func("per", "replay: the `value` of a policy file's dimension, as DIMENSION=FIELD; may be given several times\nadvise: the periods of the limits, such as 1m,1h (the default)", list(&r.per))
	f.StringVar(&r.deny, "deny", "", "advise: how many of the calls a limit may deny, in `percent`, such as 0.1% (the default)")
	r.keys = -1
	f.Func("keys", "advise: the `number` of keys that a limit may deny, in place of -deny", func(text string) error {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return errors.New("want a number of at least 0")
		}
		r.keys = n
		return nil
	})
	f.StringVar(&r.html, "html", "", "replay: also write the report to a `file` of HTML, with plots; it needs nothing else")
	f.BoolVar(&r.enforce, "enforce", false, "replay: decide all policies together, as in force")
	f.BoolVar(&r.hash, "hash", false, "replay: print hashes of the keys, by a secret that is new each time")
	f.IntVar(&r.maxKeys, "max-keys", logs.MostKeys, "replay, advise: the greatest number of keys; each takes some 300 bytes")
}

// replayLogs decides the calls of logs by a policy file.
func replayLogs(ctx context.Context, s *session, files []string) error {
	if s.policies == "" {
		return misuse{errors.New("replay: want -policies FILE, the limits to try")}
	}
	from, what, err := s.replayed(files)
	if err != nil {
		return misuse{err}
	}
	stream, err := s.openLogs(from)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	if s.json {
		what.Name = func(key string) string { return callerKey(key).arg() }
	}
	html, err := s.newPage(from.Files)
	if err != nil {
		return misuse{err}
	}
	defer html.remove()
	report, err := s.replayedReport(ctx, stream, what)
	if err != nil {
		return err
	}
	if err := html.write(report, what.Hash); err != nil {
		return err
	}
	return s.print(report, printReport(report))
}

// replayedReport replays a log.
func (s *session) replayedReport(ctx context.Context, stream *logs.Stream, what replay.Config) (*replay.Report, error) {
	var done func()
	what.Progress, done = s.progress()
	r, err := replay.New(stream, what)
	if err != nil {
		return nil, misuse{err}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(replay.GCPercent))
	report, err := r.Run(ctx)
	done()
	switch {
	case ctx.Err() != nil:
		return nil, errors.New("interrupted")
	case err != nil:
		return nil, err
	case empty(report.Sources):
		return nil, errors.New("nothing to replay: the log is empty")
	}
	return report, nil
}

// empty reports whether no file had a line.
func empty(sources []logs.Source) bool {
	return !slices.ContainsFunc(sources, func(src logs.Source) bool { return src.Lines > 0 })
}

// openLogs opens logs, and prints the formats that were guessed.
func (s *session) openLogs(from logs.Options) (*logs.Stream, error) {
	stream, err := logs.Open(from)
	if err != nil {
		return nil, misuse{err}
	}
	for _, src := range stream.Sources() {
		if src.Guessed {
			fmt.Fprintf(s.notes, "note: %s: read as %s, by its first lines\n", fileTitle(src.File), src.Format)
		}
	}
	return stream, nil
}

// replayed returns what the flags ask for.
func (s *session) replayed(files []string) (from logs.Options, what replay.Config, err error) {
	what = replay.Config{Policies: s.policies, Against: s.replay.against, Hash: s.replay.hash, Most: s.replay.most}
	what.Enforce = s.replay.enforce
	if from, err = s.logged(files); err == nil {
		err = s.replayedCosts(&from, &what)
	}
	if err == nil {
		err = s.replayedUses(&from, &what)
	}
	return from, what, err
}

// logged returns which logs the flags name, and how they are read.
func (s *session) logged(files []string) (from logs.Options, err error) {
	r := &s.replay
	from = logs.Options{
		Files: append(r.files, files...), In: os.Stdin, Format: r.format, Key: cmp.Or(s.key, "remote"), At: r.at, Duration: r.duration,
		Within: r.within, Unsorted: r.unsorted, MaxKeys: r.maxKeys,
	}
	switch {
	case r.within != "second" && r.within != "start":
		return from, fmt.Errorf("-within %s: want second or start", printable(r.within))
	case r.unsorted < 0 || r.unsorted > 24*time.Hour:
		return from, fmt.Errorf("-unsorted %v: want 0 to 24h", r.unsorted)
	case r.unsorted == 0 && r.duration != "":
		from.Unsorted = time.Minute
	case r.unsorted == 0:
		from.Unsorted = 10 * time.Second
	}
	if r.zone != "" {
		if from.Zone, err = time.LoadLocation(r.zone); err != nil || r.zone == "Local" {
			return from, fmt.Errorf("-zone %s: want a name as UTC or Europe/Berlin", printable(r.zone))
		}
	}
	if len(from.Files) == 0 && isTerminal(os.Stdin) {
		return from, errors.New("want -log FILE, or a log on the standard input")
	}
	return from, nil
}

// replayedCosts reads -cost: a number or a field, of all policies or by name.
func (s *session) replayedCosts(from *logs.Options, what *replay.Config) error {
	what.Costs = map[string]replay.Cost{}
	what.Cost = replay.Cost{Units: 1}
	for _, word := range strings.Split(s.cost, ",") {
		policy, value, named := strings.Cut(word, "=")
		if !named {
			value = policy
		}
		cost := replay.Cost{}
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case value == "" || named && policy == "" || err == nil && n < 0 || errors.Is(err, strconv.ErrRange):
			return fmt.Errorf("-cost %s: want units or a field of the log, or for each policy POLICY=FIELD", printable(s.cost))
		case err == nil:
			cost.Units = n
		default:
			from.Costs = append(from.Costs, value)
			cost.Place = len(from.Costs)
		}
		if named {
			what.Costs[policy] = cost
			continue
		}
		what.Cost = cost
	}
	return nil
}

// replayedUses reads -plan, -tenant and -per. A plan and a tenant in braces are fields.
func (s *session) replayedUses(from *logs.Options, what *replay.Config) error {
	place := func(text string) replay.Value {
		from.Uses = append(from.Uses, text)
		return replay.Value{Place: len(from.Uses)}
	}
	value := func(text string) replay.Value {
		if strings.Contains(text, "{") {
			return place(text)
		}
		return replay.Value{Text: text}
	}
	what.Plan, what.Tenant = value(s.plan), value(s.tenant)
	what.Per = map[string]replay.Value{}
	for _, word := range s.replay.per {
		name, field, ok := strings.Cut(word, "=")
		if !ok || name == "" || field == "" {
			return fmt.Errorf("-per %s: want DIMENSION=FIELD, such as route=path", printable(word))
		}
		what.Per[name] = place(field)
	}
	return nil
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// progress returns a function that writes a line over and over, if a person sees it, and one that
// removes the line.
func (s *session) progress() (show func(replay.Progress), done func()) {
	t, _ := s.notes.(terminal)
	f, ok := t.Writer.(*os.File)
	if !ok || !isTerminal(f) {
		return nil, func() {}
	}
	begin := time.Now()
	return func(p replay.Progress) {
		fmt.Fprintf(f, "\r%d calls, %d keys, %d denied, at %s, %.0f s ", p.Calls, p.Keys, p.Denied, p.At.Format(time.DateTime), time.Since(begin).Seconds())
	}, func() { fmt.Fprint(f, "\r\x1b[K") }
}
