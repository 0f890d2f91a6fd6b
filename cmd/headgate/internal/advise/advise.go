// Package advise finds the limits that would have denied no more of a log's calls than is wanted.
//
// The log is read once. Its calls are kept by key, a few bytes each, and each limit that is tried is
// decided from them. Keys are independent of each other, and only those above a limit have denials.
package advise

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/cmd/headgate/internal/logs"
)

// Options are what is wanted.
type Options struct {
	Per     []time.Duration // the windows
	Percent float64         // of the calls that a limit may deny; -1 if Keys counts
	Keys    int64           // that a limit may deny; -1 if Percent counts
	Cost    int64           // of each call; 0: it is the first of logs.Call.Costs
}

// Report is the advice.
type Report struct {
	logs.Summary
	Percent *float64 `json:"deny_percent,omitempty"`
	May     *int64   `json:"deny_keys,omitempty"`
	Scanned bool     `json:"scanned"` // costs above 1: limits were tried in steps
	Advice  []Advice `json:"advice"`
	Unknown []string `json:"unknown"` // what a log can't tell
}

// Advice is the limit of one algorithm.
type Advice struct {
	Policy    string `json:"policy"` // a name
	Algorithm string `json:"algorithm"`
	Period    string `json:"period"`
	Limit     int64  `json:"limit"` // of a token bucket its rate: the fixed window's limit
	Burst     int64  `json:"burst,omitempty"`
	Denied    int64  `json:"denied"` // calls
	Keys      int64  `json:"denied_keys"`
	Same      int64  `json:"same_keys_up_to,omitempty"` // the largest limit, or burst, that denies the same keys; 0 if none is denied
	Tried     int    `json:"tried"`                     // limits
	Refused   string `json:"refused,omitempty"`         // why there is no such limit
}

// unknown is what no log can tell.
var unknown = []string{
	"a client that is denied behaves otherwise: it waits, retries, or gives up",
	"calls and keys that the log does not have are not counted, and neither is tomorrow's growth",
}

// advisor reads a log.
type advisor struct {
	Options
	calls   calls
	summary logs.Summary
	above   bool // a cost above 1
}

// Check returns the first period that no algorithm takes.
func (o *Options) Check() error {
	for _, per := range o.Per {
		a := algo.FixedWindow(algo.Per(1, per))
		if err := a.Check(); err != nil {
			return fmt.Errorf("-per: %w", err)
		}
	}
	return nil
}

// Run reads the log and finds the limits. Check has accepted the options.
func Run(ctx context.Context, s *logs.Stream, opts Options) (*Report, error) {
	a := &advisor{Options: opts, calls: calls{costs: opts.Cost != 1}}
	if err := a.read(ctx, s); err != nil {
		return nil, err
	}
	r := &Report{Summary: a.summary.Of(s), Scanned: a.above, Unknown: unknown}
	target := Target{Keys: opts.Keys, ByKeys: opts.Keys >= 0}
	if r.May = &opts.Keys; !target.ByKeys {
		r.Percent, r.May = &opts.Percent, nil
		target.Calls = int64(math.Floor(opts.Percent/100*float64(r.Calls) + 1e-9))
	}
	for _, per := range opts.Per {
		limit := int64(0)
		for _, kind := range kinds {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			advice := a.advise(&kind, per, limit, target)
			if r.Advice = append(r.Advice, advice); kind.name == "fixed-window" {
				limit = advice.Limit
			}
		}
	}
	return r, nil
}

// read keeps the calls of the log.
func (a *advisor) read(ctx context.Context, s *logs.Stream) error {
	for {
		list, err := s.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		for i := range list {
			c := &list[i]
			a.summary.Add(c)
			cost := a.Cost
			if c.Costs != nil {
				cost = c.Costs[0]
			}
			if a.above = a.above || cost > 1; cost > 0 { // a call that costs nothing passes
				a.calls.add(c.Key, call{c.At, cost})
			}
		}
	}
}

// kind is an algorithm.
type kind struct {
	name string
	most int64 // the greatest limit, of a token bucket the greatest burst
	rule func(period, rate int64) decide
}

// kinds are those that are advised, in this order. A token bucket has the limit of the fixed window
// as its rate. A burst of twice that always suffices, for costs of 1: all that the fixed window
// passes would pass.
var kinds = []kind{
	{"fixed-window", algo.MaxCount, func(period, _ int64) decide { return fixedWindow(period) }},
	{"sliding-window", algo.MaxLimit, func(period, _ int64) decide { return slidingWindow(period) }},
	{"sliding-log", algo.MaxLogLimit, func(period, _ int64) decide { return slidingLog(period) }},
	{"token-bucket", algo.MaxLimit, func(period, rate int64) decide { return tokenBucket(rate, period) }},
}

// advise finds the limit of one algorithm. fixed is that of the fixed window of the same period.
func (a *advisor) advise(k *kind, per time.Duration, fixed int64, target Target) Advice {
	period := per.Microseconds()
	v := Advice{Policy: k.name + "-" + Duration(per), Algorithm: k.name, Period: Duration(per)}
	bucket := k.name == "token-bucket"
	if bucket && (fixed < 1 || fixed > algo.MaxLimit) {
		v.Refused = fmt.Sprintf("the rate would be above %d, the greatest of the algorithm", int64(algo.MaxLimit))
		return v
	}
	s := newSearch(&a.calls, k.rule(period, fixed), k.most, target)
	found := s.find(a.above, k.name == "sliding-window", period)
	if found > k.most {
		v.Refused, v.Tried = fmt.Sprintf("it would be above %d, the greatest limit of the algorithm", k.most), s.tried
		return v
	}
	v.Tried, v.Keys = max(1, s.tried), int64(s.above(found))
	v.Denied = s.denied(found)[0]
	if v.Keys > 0 {
		v.Same = s.hot[v.Keys-1].limit - 1
	}
	if v.Limit = found; bucket {
		v.Limit, v.Burst = fixed, found
	}
	return v
}

// find returns the limit, by the search that suits.
func (s *search) find(scan, sliding bool, period int64) int64 {
	switch {
	case s.target.ByKeys:
		return s.least
	case scan:
		return s.scan()
	case sliding:
		return s.sliding(period)
	}
	return s.halving()
}

// Duration returns a time as policy files have it: 1h for 1h0m0s.
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
