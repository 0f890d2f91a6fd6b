// Package replay decides the calls of a log by a policy file, under the log's clock.
//
// Each file has a store in memory of its own, whose clock is the instant of the call. A key never
// shares a count: the replay ends with an error instead.
package replay

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/headgate-go/headgate/cmd/headgate/internal/logs"
)

// Config is a replay.
type Config struct {
	Policies string // the path of the file
	Against  string // that of another one, or ""
	Options
	Name     func(string) string // the text of a key in the report; nil: the key
	Hash     bool                // the report has hashes of keys, by a random secret
	Progress func(Progress)      // called now and then; nil: not wanted
	Each     func(Decided)       // called for each call; nil: not wanted
	Every    int                 // calls between two calls of Progress; 0: a million
	Most     int                 // keys that a list of the report has; 0: 10
}

// Progress is how far a replay is.
type Progress struct {
	Calls, Denied, Keys int64
	At                  time.Time // of the log
}

// Decided is one call with its decision.
type Decided struct {
	Key     string
	At      time.Time
	Allowed bool
}

// Report is what a replay has found.
type Report struct {
	logs.Summary
	New     Verdict   `json:"new"`
	Old     *Verdict  `json:"old,omitempty"`
	Changes *Changes  `json:"changes,omitempty"`
	Over    *OverTime `json:"over_time,omitempty"` // nil without calls
	Unknown []string  `json:"unknown"`             // what a log can't tell
}

// Verdict is what one policy file would have denied.
type Verdict struct {
	File       string   `json:"file"`
	Enforced   bool     `json:"enforced,omitempty"` // all policies together; else each by itself, as a shadow
	Denied     int64    `json:"denied"`             // calls, by any policy
	DeniedKeys int64    `json:"denied_keys"`
	Blocked    int64    `json:"blocked,omitempty"`   // of the denied calls: those that the file blocks
	Unlimited  int64    `json:"unlimited,omitempty"` // calls for which the file has no limit
	Refused    int64    `json:"refused,omitempty"`   // calls that are wrong, as the last of them shows
	Reason     string   `json:"reason,omitempty"`
	Policies   []Policy `json:"policies"`
	Notes      []string `json:"notes,omitempty"`
}

// Changes are the differences between two files.
type Changes struct {
	MoreDenied int64  `json:"more_denied"`      // calls that only the new one denies
	LessDenied int64  `json:"less_denied"`      // calls that only the old one denies
	MoreKeys   int64  `json:"more_denied_keys"` // keys with calls that only the new one denies
	NewKeys    int64  `json:"new_keys"`         // keys that only the new one denies
	FreedKeys  int64  `json:"freed_keys"`       // keys that only the old one denies
	Most       []Most `json:"most"`             // keys with the most calls that only the new one denies
}

// unknown is what no replay can tell.
var unknown = []string{
	"a client that is denied behaves otherwise: it waits, retries, or gives up",
	"calls and keys that the log does not have are not counted",
}

// Replay is a replay on its way. It has one goroutine.
type Replay struct {
	Config
	stream   *logs.Stream
	new, old *limits // old is nil without Against
	summary  logs.Summary
	at       int64
	more     logs.Column[uint32] // by key: calls that only new denies
	changes  Changes
	over     over
}

// New loads the policy files.
func New(s *logs.Stream, c Config) (*Replay, error) {
	r := &Replay{Config: c, stream: s, at: math.MinInt64}
	var err error
	if r.new, err = newLimits(c.Policies, c.Options, s.MaxKeys); err != nil {
		return nil, err
	}
	if c.Against != "" {
		if r.old, err = newLimits(c.Against, c.Options, s.MaxKeys); err != nil {
			return nil, err
		}
	}
	var policies, dimensions []string
	for _, l := range r.both() {
		policies, dimensions = append(policies, l.policies()...), append(dimensions, l.file.Dimensions()...)
	}
	for name := range c.Costs {
		if !slices.Contains(policies, name) {
			return nil, fmt.Errorf("-cost: no policy %.80q in the file", name)
		}
	}
	for per := range c.Per {
		if !slices.Contains(dimensions, per) {
			return nil, fmt.Errorf("-per: no policy of the file has per: %.80q", per)
		}
	}
	if c.Every == 0 {
		r.Every = 1_000_000
	}
	return r, nil
}

// Run decides all calls of the stream.
func (r *Replay) Run(ctx context.Context) (*Report, error) {
	if err := r.all(ctx); err != nil {
		return nil, err
	}
	return r.report()
}

// both returns the limits that decide.
func (r *Replay) both() []*limits {
	if r.old == nil {
		return []*limits{r.new}
	}
	return []*limits{r.new, r.old}
}

// all decides all calls.
func (r *Replay) all(ctx context.Context) error {
	for {
		calls, err := r.stream.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		for i := 0; i < len(calls) && err == nil; i++ {
			err = r.decide(ctx, &calls[i])
		}
		if err != nil {
			return err
		}
	}
	for _, l := range r.both() {
		if err := l.shared(); err != nil {
			return err
		}
	}
	return nil
}

// decide decides a call by one file, or by two.
func (r *Replay) decide(ctx context.Context, c *logs.Call) error {
	if c.At < r.at {
		return errors.New("the log's clock stepped back: this is a mistake of the replay")
	}
	if r.summary.Add(c); r.summary.Calls > math.MaxUint32 {
		return fmt.Errorf("more than %d calls", int64(math.MaxUint32))
	}
	r.at = c.At
	denied, err := r.new.decide(ctx, c, r.stream)
	before := false
	if err == nil && r.old != nil {
		before, err = r.compare(ctx, c, denied)
	}
	r.over.add(c, denied, before)
	if r.Each != nil && err == nil {
		r.Each(Decided{r.stream.Keys.Name(c.Key), time.UnixMicro(c.At).UTC(), !denied})
	}
	if n := r.summary.Calls; r.Progress != nil && n%int64(r.Every) == 0 {
		r.Progress(Progress{n, r.new.total.denied, r.summary.Keys, time.UnixMicro(c.At).UTC()})
	}
	return err
}

// compare decides a call by the old file, and counts the difference.
func (r *Replay) compare(ctx context.Context, c *logs.Call, denied bool) (before bool, err error) {
	before, err = r.old.decide(ctx, c, r.stream)
	switch {
	case denied && !before:
		r.changes.MoreDenied++
		*r.more.Grown(c.Key)++
	case before && !denied:
		r.changes.LessDenied++
	}
	return before, err
}

// report returns what was found. The text of a key is hashed by a secret that nobody keeps, if
// that is wanted. A plain hash of an address is found by trying all of them.
func (r *Replay) report() (*Report, error) {
	shown := r.Name
	if shown == nil {
		shown = func(key string) string { return key }
	}
	if r.Hash {
		secret := make([]byte, 32)
		if _, err := rand.Read(secret); err != nil {
			return nil, err
		}
		shown = func(key string) string {
			h := hmac.New(sha256.New, secret)
			h.Write([]byte(key))
			return hex.EncodeToString(h.Sum(nil)[:8])
		}
	}
	report := &Report{Summary: r.summary.Of(r.stream), New: r.verdict(r.new, shown), Unknown: unknown}
	if report.Calls > 0 {
		report.Over = r.over.report(r.old != nil)
	}
	if r.Hash {
		for i := range report.Sources {
			report.Sources[i].First = withoutText(report.Sources[i].First)
		}
	}
	if r.old != nil {
		old := r.verdict(r.old, shown)
		report.Old, report.Changes = &old, r.changed(shown)
	}
	return report, nil
}

// withoutText leaves out the text of lines, which may have a key.
func withoutText(bad []logs.Bad) []logs.Bad {
	bad = slices.Clone(bad)
	for i := range bad {
		bad[i].Text, bad[i].Reason = "", "left out, as keys are hashed"
	}
	return bad
}

func (r *Replay) verdict(l *limits, shown func(string) string) Verdict {
	t := &l.total
	v := Verdict{
		File: l.name, Enforced: l.Enforce, Denied: t.denied, DeniedKeys: t.keys, Blocked: t.blocked, Unlimited: t.unlimited,
		Refused: t.refused, Policies: []Policy{}, Notes: l.notes,
	}
	if !r.Hash {
		v.Reason = t.reason
	}
	for _, of := range l.rows {
		keys := of.names
		if keys == nil {
			keys = r.stream.Keys
		}
		v.Policies = append(v.Policies, of.summary(r.most(), func(n uint32) string { return shown(keys.Name(n)) }))
	}
	return v
}

// most returns the number of keys that a list of the report has.
func (r *Replay) most() int { return cmp.Or(r.Most, 10) }

// changed returns the differences.
func (r *Replay) changed(shown func(string) string) *Changes {
	c := r.changes
	c.Most = []Most{}
	denied := func(l *limits, key uint32) bool {
		return int(key) < l.total.byKey.Len() && *l.total.byKey.At(key) > 0
	}
	var top []ranked
	for i := range uint32(r.stream.Keys.Len()) {
		now, before := denied(r.new, i), denied(r.old, i)
		if now && !before {
			c.NewKeys++
		}
		if before && !now {
			c.FreedKeys++
		}
		if int(i) < r.more.Len() && *r.more.At(i) > 0 {
			c.MoreKeys++
			top = rank(top, r.most(), ranked{i, *r.more.At(i)})
		}
	}
	for _, t := range top {
		c.Most = append(c.Most, Most{Key: shown(r.stream.Keys.Name(t.key)), Denied: int64(t.n)})
	}
	return &c
}

// GCPercent is how much the heap of a replay grows between two collections. Nearly all of it is
// kept until the end, and few of it has pointers.
const GCPercent = 30
