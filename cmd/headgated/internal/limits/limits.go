// Package limits reads the configuration files of envoyproxy/ratelimit and finds the
// limit of a descriptor.
//
// A file has the fields that envoyproxy/ratelimit documents, with the same meaning, and
// these additions, which stand under rate_limit:
//
//   - algorithm: fixed-window (the default), sliding-window, bucketed-window (10
//     buckets), sliding-log, compact-log, token-bucket (its burst is
//     requests_per_unit) or calendar
//   - zone and anchor, for calendar: the time zone (UTC), and the first day, which is a
//     weekday of a week (monday), and a number of a month (1)
//   - unit_multiplier: the period is so many units
//   - on_failure: open, closed or local; without it a request that no store decided is
//     answered with an error
//   - charge: admitted or always; without it, hits above 1 are charged always
//   - borrow: for how long a server may hold units of a busy key, such as 50ms, so that
//     it decides most requests by itself; 0s is not at all
//
// and metadata, a mapping that stands beside rate_limit.
package limits

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// Unit is a unit of time of the protocol.
type Unit = rls.RateLimitResponse_RateLimit_Unit

// Charge is when hits are charged.
type Charge int

// The ways to charge.
const (
	ChargeDefault  Charge = iota // one hit is charged if it is admitted, more are charged always
	ChargeAdmitted               // if the request is admitted
	ChargeAlways                 // also above the limit: they were used already
)

// Rule is the limit that a descriptor matched. It is immutable and shared.
type Rule struct {
	Limit       *rls.RateLimitResponse_RateLimit // as statuses have it; shared, never to be written
	Unlimited   bool
	Shadow      bool // denies nothing
	OwnShadow   bool // by its shadow_mode, and not by Options.Shadow: its status is OK
	Quota       bool
	Charge      Charge
	FailureMode bool // the file names one; else a request that no store decided is an error
	Replaces    []string
	Metadata    *structpb.Struct
	Period      time.Duration // that of the unit, with its factor
	Algorithm   string        // its word
	Civil       string        // of the calendar: its period and zone; "" of others
	File        string        // that has the rule, and its line; "" of a limit of a request
	Line        int
	Label       string            // the descriptor's path in the file, for metrics
	Policy      headgate.Policy   // zero if Unlimited; if nothing may pass, it has only the Algorithm
	Borrow      time.Duration     // as headgate.Options.Borrow
	Limiter     *headgate.Limiter // nil if Unlimited, or if nothing may pass
	detailed    bool
	valued      bool // its labels have values of requests
}

// Max returns the units that the rule admits per Period.
func (r *Rule) Max() int64 { return int64(r.Limit.GetRequestsPerUnit()) }

// setUnit sets the period. A factor of 1 is left out of statuses, as clients know them.
func (r *Rule) setUnit(u Unit, times uint32) {
	r.Limit.Unit, r.Period = u, lengthOf(u, times)
	if times != 1 {
		r.Limit.UnitMultiplier = wrapperspb.UInt32(times)
	}
}

// Config is what a list of files contains. It is immutable and safe for concurrent use.
type Config struct {
	// Warnings name what the files have and what has no effect.
	Warnings []string
	// Origin is where the files come from. The caller sets it before it uses the Config.
	Origin Origin

	domains   map[string]*node
	overrides *overrides
	denies    bool // a rule lets no request pass that no store decided
}

// Origin is where files come from.
type Origin struct {
	Source  string    `json:"source"`  // "files" or "xds"
	Version string    `json:"version"` // the Digest, or that of the discovery service
	Digest  string    `json:"digest"`  // of what the files say, whatever they are called
	Since   time.Time `json:"since"`   // when they came into force
	Files   []string  `json:"files"`
}

// Passes reports whether every limit is open or local: its requests are answered also
// while no store decides.
func (c *Config) Passes() bool { return !c.denies }

// Empty reports whether there is no domain.
func (c *Config) Empty() bool { return len(c.domains) == 0 }

// Limits returns the number of limits of each domain.
func (c *Config) Limits() map[string]int {
	all := map[string]int{}
	for name, domain := range c.domains {
		all[name] = domain.limits()
	}
	return all
}

// Rules returns the rules of all domains, in the order of their labels.
func (c *Config) Rules() (all []*Rule) {
	for _, domain := range c.domains {
		all = domain.rules(all)
	}
	slices.SortFunc(all, func(a, b *Rule) int { return strings.Compare(a.Label, b.Label) })
	return all
}

// Label is the path of a rule.
type Label struct {
	Path   string
	Valued bool // requests add values to it
}

// Labels returns those of the rules, and of the limits that requests bring.
func (c *Config) Labels() (all []Label) {
	for _, r := range c.Rules() {
		all = append(all, Label{r.Label, r.valued})
	}
	for _, name := range slices.Sorted(maps.Keys(c.domains)) {
		all = append(all, Label{OverrideLabel(name), false})
	}
	return all
}

// Has reports whether there is a domain of this name.
func (c *Config) Has(domain string) bool { return c.domains[domain] != nil }

// node is a descriptor of a file, or a domain.
type node struct {
	name          string // "key" or "key_value"
	rule          *Rule  // nil if it has no rate_limit
	children      map[string]*node
	wildcards     []wildcard // the children whose name has a star, in the file's order
	share         string     // the value that stands for all values which match; "" if each has its own count
	valueToMetric bool
	open, valued  bool // on the path to it there is a value that the file does not fix; value_to_metric adds one
}

// limits counts the rules of a node and of all below it.
func (n *node) limits() (all int) {
	if n.rule != nil {
		all++
	}
	for _, child := range n.children {
		all += child.limits()
	}
	return all
}

func (n *node) rules(all []*Rule) []*Rule {
	if n.rule != nil {
		all = append(all, n.rule)
	}
	for _, child := range n.children {
		all = child.rules(all)
	}
	return all
}

// Options are the settings of Parse.
type Options struct {
	// New returns the limiter of a policy that borrows for a term; 0: it does not. It is called
	// once for each policy.
	New func(p headgate.Policy, borrow time.Duration) (*headgate.Limiter, error)
	// NewOverride is New for the limits that requests bring; nil is New.
	NewOverride func(p headgate.Policy, borrow time.Duration) (*headgate.Limiter, error)
	// MergeDomains merges files of one domain. Otherwise the second one is an error.
	MergeDomains bool
	// Algorithm, OnFailure, Charge and Borrow are the words that apply if a rule has none;
	// "" are the defaults.
	Algorithm, OnFailure, Charge, Borrow string
	// Shadow makes every rule a shadow: it counts, and denies nothing.
	Shadow bool
	// Quota makes every rule a quota.
	Quota bool
}

// File is a file's name and bytes.
type File struct {
	Name string
	Data []byte
}

// Parse reads files in the order given. The error is an *Error with file, line and key.
func Parse(files []File, opts Options) (*Config, error) {
	p := &parser{opts: opts, config: &Config{domains: map[string]*node{}}, zones: map[string]*time.Location{}}
	if err := p.defaults(); err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := p.parse(f); err != nil {
			return nil, err
		}
	}
	p.config.overrides = newOverrides(p)
	return p.config, nil
}
