package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/adapter"
	"github.com/headgate-go/headgate/shard"
	"golang.org/x/sync/errgroup"
)

// looked is what peek prints of a key. The names in its JSON are an interface
// for scripts: durations are in microseconds, as the store has them.
type looked struct {
	Key       callerKey  `json:"key"`
	Allowed   bool       `json:"allowed"`
	Binding   string     `json:"binding"`               // the policy that denies, or that is nearest to it; with first the one that is charged
	First     []string   `json:"first,omitempty"`       // of these policies the first one with room is charged
	Known     string     `json:"known"`                 // what the numbers are: exact; estimated, if some sub-keys gave no answer; not_counted, if there are none
	Undecided bool       `json:"undecided,omitempty"`   // no living sub-key has room: the failure mode decides, and waits are unknown
	Policies  []state    `json:"policies"`              // empty where the file has no limit for the key, or blocks it
	Others    []*counted `json:"also_stored,omitempty"` // of the key, by no policy of the plan
	NotAsked  []scoped   `json:"not_asked,omitempty"`   // policies that limit such calls too, by other keys

	unknown bool // nothing is stored of the key
}

// state is what peek prints of a policy. The embedded State has the same
// numbers as Go durations, for the text.
type state struct {
	Policy     string `json:"policy"`
	Algorithm  string `json:"algorithm"`
	Shards     int    `json:"shards,omitempty"`
	Shadow     bool   `json:"shadow,omitempty"` // it denies nothing
	Known      string `json:"known"`            // of not_counted the numbers below are unknown
	Never      bool   `json:"never,omitempty"`  // the cost is above the limit of a shadow, which denies nothing
	Limit      int64  `json:"limit"`
	Used       int64  `json:"used"`
	Lent       int64  `json:"lent,omitempty"` // of these: units that processes hold in advance
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after_us"`
	ResetAfter int64  `json:"reset_after_us"`

	headgate.State `json:"-"`
}

// peek prints what Limiter.Peek returns. Without a policy file it prints what
// is stored of the key, which has no limits.
func peek(ctx context.Context, s *session, args []string) error {
	if err := s.wantsPolicies(); err != nil {
		return err
	}
	//mutant:cost-needs-policies
	if s.policies == "" && s.cost != oneUnit {
		return misuse{fmt.Errorf("-cost %s: want -policies, the file whose policies it is a cost of", printable(s.cost))}
	}
	if s.policies == "" {
		return s.peekStored(ctx, args[0])
	}
	list, key, err := s.list(args[0])
	//mutant:peek-without-limits
	if uncounted(err) {
		p := looked{Key: callerKey(args[0]), Allowed: !errors.Is(err, headgate.ErrBlocked), Known: backend.NotCounted.String(), Policies: []state{}, NotAsked: s.unasked}
		return s.print(p, p.text)
	}
	if err != nil {
		return err
	}
	costs, err := s.costs(len(list))
	if err != nil {
		return err
	}
	l, err := s.limiter(ctx, list)
	if err != nil {
		return err
	}
	return s.peekCounts(ctx, l, key, costs)
}

// peekCounts prints what the limiter counts of the key, and which nodes are missing from it.
func (s *session) peekCounts(ctx context.Context, l *headgate.Limiter, key string, costs []int64) error {
	p, err := look(ctx, l, key, costs)
	//mutant:peek-of-spent-sub-keys
	if adapter.Of(l).Shards > 1 && errors.Is(err, headgate.ErrUnavailable) { // without a cost the living ones have room
		if free, _ := look(ctx, l, key, make([]int64, len(costs))); free.estimated() {
			p, err = free, nil
			p.Allowed, p.Undecided = false, true
		}
	}
	if err != nil {
		return err
	}
	p.NotAsked = s.unasked
	p.byFirst(s.first)
	missing := error(nil)
	//mutant:peek-of-living-sub-keys
	if p.estimated() {
		missing = p.known(ctx, s.store, l)
	}
	if store, ok := s.store.(inspector); ok {
		err = p.compare(ctx, store, l)
	}
	//mutant:peek-needs-no-other-node
	if err != nil && (errors.As(err, new(*backend.RightError)) || !p.estimated()) { // only this failed
		s.note("what else is stored of the key could not be read", err)
		err = nil
	}
	err = cmp.Or(err, missing)
	return errors.Join(s.print(p, p.text), err)
}

// estimated reports whether some sub-keys gave no answer.
func (p *looked) estimated() bool { return p.Known == backend.Estimated.String() }

// note prints an error that does not make the command fail: a line per node.
func (s *session) note(text string, err error) {
	for _, line := range strings.Split(explain("peek", err), "\n") {
		fmt.Fprintf(s.notes, "note: %s: %s\n", text, line)
	}
}

// known replaces what is used of a spread key by what its sub-keys count that give an
// answer. A limiter counts the others as spent. It returns the errors of the others, which
// name their nodes.
func (p *looked) known(ctx context.Context, store backend.Store, l *headgate.Limiter) error {
	policies, names := l.Policies(), shard.SubKeys(string(p.Key), adapter.Of(l).Shards)
	each, errs := make([][]headgate.State, len(names)), make([]error, len(names))
	var group errgroup.Group
	group.SetLimit(asked)
	for i, sub := range names {
		group.Go(func() error {
			part := slices.Clone(policies)
			for j := range part {
				part[j].Algorithm = part[j].Algorithm.Part(int64(i), int64(len(names)))
			}
			each[i] = make([]headgate.State, len(part))
			r := backend.Request{Op: backend.Peek, Group: backend.Group{Key: string(p.Key), Sub: sub, Policies: part, Each: each[i]}}
			errs[i] = store.Do(ctx, &r, new(backend.Decision))
			return nil
		})
	}
	_ = group.Wait()
	for j := range p.Policies {
		s := &p.Policies[j]
		s.Used, s.Lent = 0, 0
		for i := range each {
			if errs[i] == nil {
				s.Used += each[i][j].Used
				s.Lent += each[i][j].Lent
			}
		}
	}
	return errors.Join(errs...)
}

// compare looks for what is stored of the key by other policies where one of the
// file counts nothing. The file may have another name, algorithm or period than the
// service. It does so too where sub-keys gave no answer, whose nodes its error names.
// Only then, since it reads all keys of the server.
func (p *looked) compare(ctx context.Context, store inspector, l *headgate.Limiter) error {
	if !p.estimated() && !slices.ContainsFunc(p.Policies, func(s state) bool { return s.Used == 0 && s.State.Known != backend.NotCounted }) {
		return nil
	}
	parts, err := store.Stored(ctx, string(p.Key))
	p.unknown = len(parts) == 0 && err == nil
	all := kept{}
	for i := range parts {
		for j := range parts[i].Policies {
			all.count(&parts[i].Policies[j], shards(parts[i].Sub)).SubKeys++
		}
	}
	for _, c := range all.Counts {
		if !c.of(l) {
			p.Others = append(p.Others, &c.counted)
		}
	}
	return err
}

// costs returns the numbers of -cost: one per policy.
func (s *session) costs(policies int) ([]int64, error) {
	words := strings.Split(s.cost, ",")
	if len(words) != 1 && len(words) != policies {
		return nil, misuse{fmt.Errorf("-cost %s: want one number, or one for each of %d policies", s.cost, policies)}
	}
	costs := make([]int64, policies)
	for i := range costs {
		n, err := strconv.ParseInt(words[min(i, len(words)-1)], 10, 64)
		//mutant:negative-cost-is-misuse
		if err != nil || n < 0 {
			return nil, misuse{fmt.Errorf("-cost %s: want whole numbers, at least 0", s.cost)}
		}
		costs[i] = n
	}
	return costs, nil
}

// look returns what a call would get. If the store gives no answer, that is an
// error, whatever the failure modes are: a reader wants counts, not a policy's
// way out.
func look(ctx context.Context, l *headgate.Limiter, key string, costs []int64) (looked, error) {
	policies := l.Policies()
	each := make([]headgate.State, len(policies))
	d, err := l.Peek(ctx, headgate.Call{Key: key, Costs: costs, Each: each})
	if err == nil && d.Source != headgate.FromStore {
		err = d.Err
	}
	if err != nil {
		return looked{}, err
	}
	p := looked{Key: callerKey(key), Allowed: d.Allowed, Binding: d.Policy, Known: d.Known.String()}
	for i, st := range each {
		p.Policies = append(p.Policies, state{
			Policy: st.Policy, Algorithm: policies[i].Algorithm.String(), Shards: adapter.Of(l).Shards, Shadow: policies[i].Shadow, Known: st.Known.String(), Never: costs[i] > st.Limit,
			Limit: st.Limit, Used: st.Used, Lent: st.Lent, Remaining: st.Remaining,
			RetryAfter: micros(st.RetryAfter), ResetAfter: micros(st.ResetAfter), State: st,
		})
	}
	return p, nil
}

// byFirst makes the answer that of a call that is charged to the first of these policies with room,
// and to those that are none of them. A denial is by the one that passes soonest.
func (p *looked) byFirst(names []string) {
	if p.First = names; names == nil {
		return
	}
	p.Allowed, p.Binding = false, ""
	soonest := int64(math.MaxInt64)
	for _, name := range names {
		binds, wait := name, int64(0)
		for i := range p.Policies {
			s := &p.Policies[i]
			if !s.Shadow && s.RetryAfter > wait && (s.Policy == name || !slices.Contains(names, s.Policy)) {
				binds, wait = s.Policy, s.RetryAfter
			}
		}
		//mutant:peek-by-first
		if wait < soonest {
			p.Allowed, p.Binding, soonest = wait == 0, binds, wait
		}
	}
}

// answer is that to the call, and no more than the policies that were asked promise.
func (p *looked) answer() string {
	//mutant:not-all-asked
	if p.Allowed && len(p.NotAsked) > 0 {
		return p.verdict() + "; not all policies were asked"
	}
	return p.verdict()
}

// verdict is the answer of the policies that were asked.
func (p *looked) verdict() string {
	switch {
	case len(p.Policies) == 0 && p.Allowed:
		return "would pass: the file has no limit for it"
	case len(p.Policies) == 0:
		return "would be denied: the file blocks it"
	case p.Undecided:
		return "would get the answer of its failure mode: no sub-key that gave an answer has room"
	case p.Allowed && p.estimated():
		return "would pass, as far as its sub-keys gave an answer"
	case p.Allowed && p.First != nil:
		return "would pass, charged to " + p.Binding + ", of first " + strings.Join(p.First, ", ")
	case p.Allowed:
		return "would pass"
	case p.estimated():
		return "would be denied by " + p.Binding + ", as far as its sub-keys gave an answer"
	}
	return "would be denied by " + p.Binding
}

// text has the answer in its first line, and the numbers below it.
func (p *looked) text(w *tabwriter.Writer) {
	defer p.notAsked(w)
	fmt.Fprintf(w, "%s %s\n", printable(string(p.Key)), p.answer())
	if len(p.Policies) == 0 {
		return
	}
	row(w, "POLICY", "ALGORITHM", "LIMIT", "USED", "REMAINING", "RETRY AFTER", "RESET AFTER")
	for _, s := range p.Policies {
		name := s.name()
		if s.Shards > 1 {
			name += fmt.Sprintf(" (%d sub-keys)", s.Shards)
		}
		if s.State.Known == backend.NotCounted {
			row(w, name, s.Algorithm, s.Limit, "-", "-", "-", "-")
			continue
		}
		retry := s.State.RetryAfter.String()
		switch {
		case p.Undecided:
			retry = "-"
		case s.Never:
			retry = "never"
		}
		row(w, name, s.Algorithm, s.Limit, s.Used, s.Remaining, retry, s.State.ResetAfter)
	}
	for _, s := range p.Policies {
		if s.Lent > 0 {
			fmt.Fprintf(w, "%s: processes hold %d of the used units in advance\n", s.name(), s.Lent)
		}
	}
	for _, c := range p.Others {
		fmt.Fprintln(w, "also stored, not in this plan:", c)
	}
	if p.unknown {
		fmt.Fprintf(w, "nothing is stored of the key\n%s\n", otherKeys)
	}
}

// notAsked names the policies that may deny a call that the others pass.
func (p *looked) notAsked(w *tabwriter.Writer) {
	if !p.Allowed || len(p.NotAsked) == 0 {
		return
	}
	for _, s := range p.NotAsked {
		fmt.Fprintln(w, "not asked:", s)
	}
	fmt.Fprintln(w, "to ask those with per: -of DIMENSION=VALUE; those without: no -of")
}

// name is the policy's, and marks one that denies nothing.
func (s *state) name() string {
	if s.Shadow {
		return s.Policy + " (shadow)"
	}
	return s.Policy
}
