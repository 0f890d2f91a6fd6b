package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/cmd/headgate/internal/logs"
	"github.com/headgate-go/headgate/policyfile"
)

// Options say what limits a call. Plan, Tenant and Per are values, or the places of values among
// those that a call uses (logs.Stream.Uses).
type Options struct {
	Plan, Tenant Value
	Per          map[string]Value // by dimension
	Cost         Cost             // of policies that Costs does not name
	Costs        map[string]Cost  // by policy
	Enforce      bool             // decide all or nothing, as the file does in force
}

// Value is a text, or the place of one.
type Value struct {
	Text  string
	Place int // from 1 on; 0: it is Text
}

func (v Value) of(use []string) string {
	if v.Place == 0 {
		return v.Text
	}
	return use[v.Place-1]
}

// Cost is a number of units, or the place of one among logs.Call.Costs.
type Cost struct {
	Units int64
	Place int // from 1 on; 0: it is Units
}

// limits are those of one policy file, with a store whose clock is the log's.
//
// A policy is decided as a shadow, unless Options.Enforce is set: each by itself, as in a service
// that tries the file without denying.
type limits struct {
	Options
	name   string
	file   *policyfile.File
	made   *policyfile.Limiters
	store  *memory.Store
	now    time.Time
	scopes map[*headgate.Limiter]*scope
	used   []*used // by the number of a use
	rows   []*row
	notes  []string
	own    map[string]*logs.Keys // keys that count by a dimension
	total  totals
	most   int             // keys of a dimension
	full   error           // these are more
	parts  []headgate.Part // scratch
}

// totals are those of a file's limits together.
type totals struct {
	denied    int64 // calls
	blocked   int64 // of these, calls that the file blocks
	unlimited int64 // calls without a limit
	refused   int64 // calls that no limiter takes
	reason    string
	byKey     logs.Column[uint32] // denied calls of each key
	keys      int64               // that were denied
}

// used is what limits the calls with one use.
type used struct {
	blocked bool
	wrong   string // why no limiter takes such a call, as of an unknown plan
	parts   []part
}

// part is a limiter, and what follows the key of its calls.
type part struct {
	*scope
	suffix string
	keys   *logs.Keys // of the counted keys; nil: those of the stream
}

// scope is a limiter of the file, as the replay has it.
type scope struct {
	limiter *headgate.Limiter // nil: none of its policies can be replayed
	rows    []*row
	costs   []int64
	from    []Cost
	each    []headgate.State
}

// newLimits loads a policy file.
func newLimits(path string, opts Options, most int) (*limits, error) {
	l := &limits{Options: opts, name: path, most: most, scopes: map[*headgate.Limiter]*scope{}, own: map[string]*logs.Keys{}}
	var err error
	// A file with first is refused: what one of its policies would deny says nothing.
	if l.file, err = policyfile.Load(path, &policyfile.Options{OnFailure: headgate.FailClosed}); err != nil {
		return nil, err
	}
	if _, ok := l.file.Plan(opts.Plan.Text); !ok {
		return nil, &headgate.InvalidError{What: "-plan", Value: opts.Plan.Text, Want: "one of " + strings.Join(l.file.Plans(), ", ")}
	}
	// Stream.MaxKeys bounds the keys. The store must never be full, since keys would share a count.
	l.store = memory.New(&memory.Options{Now: func() time.Time { return l.now }, MaxKeys: math.MaxInt / 2})
	l.made, err = l.file.Limiters(l.store, &headgate.Options{Instances: 1})
	for _, per := range l.file.Dimensions() {
		if _, ok := opts.Per[per]; !ok {
			l.notes = append(l.notes, fmt.Sprintf("policies with per: %s are left out; -per %s=FIELD has their values", per, per))
		}
	}
	return l, err
}

// policies returns the names of the policies in the file.
func (l *limits) policies() (names []string) {
	for _, plan := range append(l.file.Plans(), "") {
		list, _ := l.file.Plan(plan)
		names = append(names, namesOf(list)...)
	}
	for _, tenant := range l.file.Tenants() {
		names = append(names, namesOf(l.file.For(tenant))...)
	}
	return names
}

func namesOf(l policyfile.List) (names []string) {
	for _, p := range l.Policies {
		names = append(names, p.Name)
	}
	for _, p := range l.Scoped {
		names = append(names, p.Policy.Name)
	}
	return names
}

// useOf returns what limits the calls with a use. Each is found once.
func (l *limits) useOf(n uint32, values []string) (*used, error) {
	for int(n) >= len(l.used) {
		l.used = append(l.used, nil)
	}
	if l.used[n] != nil {
		return l.used[n], nil
	}
	const key = "k"
	of := policyfile.Use{Of: map[string]string{}}
	for per, v := range l.Per {
		if slices.Contains(l.file.Dimensions(), per) { // the other file may have it
			of.Of[per] = v.of(values)
		}
	}
	plan, tenant := l.Plan.of(values), l.Tenant.of(values)
	parts, err := l.made.PartsFor(tenant, key, of)
	if plan != "" {
		parts, err = l.made.PlanParts(plan, key, of)
	}
	u := &used{}
	//mutant:unknown-plan-is-counted
	if u.blocked = errors.Is(err, headgate.ErrBlocked); err != nil && !u.blocked {
		u.wrong = err.Error()
	}
	for i := range parts {
		p, err := l.part(&parts[i], strings.TrimPrefix(parts[i].Call.Key, key), plan, tenant)
		if err != nil {
			return nil, err
		}
		if p.limiter != nil {
			u.parts = append(u.parts, p)
		}
	}
	l.used[n] = u
	return u, nil
}

// part returns a part of the calls whose counted key ends with suffix. Those of a dimension have
// numbers of their own.
func (l *limits) part(of *headgate.Part, suffix, plan, tenant string) (part, error) {
	s, err := l.scope(of.Limiter, plan, tenant)
	if err != nil {
		return part{}, err
	}
	p := part{scope: s, suffix: suffix}
	if per, _, ok := strings.Cut(strings.TrimPrefix(suffix, ":"), ":"); ok {
		if p.keys = l.own[per]; p.keys == nil {
			p.keys = logs.NewKeys()
			l.own[per] = p.keys
		}
		for _, r := range s.rows {
			r.names = p.keys
		}
	}
	return p, nil
}

// scope returns the limiter of the replay for one of the file: of a plan, or of a tenant that has
// one of its own.
func (l *limits) scope(of *headgate.Limiter, plan, tenant string) (*scope, error) {
	if s := l.scopes[of]; s != nil {
		return s, nil
	}
	plan, tenant = l.owner(plan, tenant)
	s := &scope{}
	l.scopes[of] = s
	list := of.Policies()
	list = slices.DeleteFunc(list, func(p headgate.Policy) bool {
		if !p.Algorithm.Kind().Leased() {
			return false
		}
		l.note(p.Name + " is left out: a log does not tell how many calls run at once")
		return true
	})
	for i := range list {
		r := newRow(&list[i], plan, tenant)
		s.rows, l.rows = append(s.rows, r), append(l.rows, r)
		list[i].Shadow = list[i].Shadow || !l.Enforce
		from, ok := l.Costs[list[i].Name]
		if !ok {
			from = l.Cost
		}
		s.from = append(s.from, from)
	}
	if len(list) == 0 {
		return s, nil
	}
	plain, err := l.plain(of)
	if err == nil {
		s.limiter, err = plain.With(list...)
	}
	s.each, s.costs = make([]headgate.State, len(list)), make([]int64, len(list))
	return s, err
}

// owner returns the plan or the tenant that has the limits of a call, as the report names it. That
// is the plan of a tenant without fields of its own, and neither of the default plan.
func (l *limits) owner(plan, tenant string) (ofPlan, ofTenant string) {
	if plan != "" || !slices.Contains(l.file.Tenants(), tenant) {
		return plan, ""
	}
	for _, name := range l.file.Plans() {
		if of, _ := l.made.Plan(name); of != nil && of == l.made.For(tenant) {
			return name, ""
		}
	}
	return "", tenant
}

// plain returns a limiter without sub-keys and loans: both depend on what other processes do.
func (l *limits) plain(of *headgate.Limiter) (*headgate.Limiter, error) {
	one, err := of.WithShards(0)
	if err != nil {
		return nil, err
	}
	return one.WithBorrow(0)
}

func (l *limits) note(text string) {
	if !slices.Contains(l.notes, text) {
		l.notes = append(l.notes, text)
	}
}

// decide decides a call, and reports whether it would be denied.
func (l *limits) decide(ctx context.Context, c *logs.Call, s *logs.Stream) (denied bool, err error) {
	u, err := l.useOf(c.Of, *s.Uses.At(c.Of))
	switch {
	case err != nil:
		return false, err
	case u.wrong != "":
		l.total.refused++
		l.total.reason = u.wrong
	case u.blocked:
		l.total.blocked++
		denied = true
	case len(u.parts) == 0:
		l.total.unlimited++
	default:
		l.now = time.UnixMicro(c.At)
		denied = l.ask(ctx, u, c, s.Keys)
	}
	if denied {
		l.total.deny(c.Key)
	}
	return denied, l.full
}

func (t *totals) deny(key uint32) {
	t.denied++
	n := t.byKey.Grown(key)
	if *n == 0 {
		t.keys++
	}
	*n++
}

// ask asks the limiters of a call.
func (l *limits) ask(ctx context.Context, u *used, c *logs.Call, keys *logs.Keys) (denied bool) {
	name := keys.Name(c.Key)
	var d headgate.Decision
	var err error
	if p := &u.parts[0]; len(u.parts) == 1 {
		d, err = p.limiter.Do(ctx, p.call(name, c))
	} else {
		l.parts = l.parts[:0]
		for i := range u.parts {
			p := &u.parts[i]
			l.parts = append(l.parts, headgate.Part{Limiter: p.limiter, Call: p.call(name, c)})
		}
		d, err = headgate.All(ctx, l.parts...)
	}
	never := errors.Is(err, headgate.ErrNeverAdmissible)
	if err != nil && !never {
		l.total.refused++
		l.total.reason = err.Error()
		return false
	}
	for i := range u.parts {
		p := &u.parts[i]
		key := c.Key
		if p.keys != nil {
			key = p.keys.Number([]byte(name + p.suffix))
			//mutant:dimension-shares-no-count
			if p.keys.Len() > l.most {
				l.full = logs.Full("keys of a dimension", l.most)
			}
		}
		for j, r := range p.rows {
			lacks := r.count(key, c, &p.each[j], p.costs[j], never)
			denied = denied || lacks && !r.shadow
		}
	}
	if l.Enforce {
		return never || !d.Allowed
	}
	return denied
}

// call returns the call of a part.
func (p *part) call(key string, c *logs.Call) headgate.Call {
	if p.suffix != "" {
		key += p.suffix
	}
	for i, from := range p.from {
		if p.costs[i] = from.Units; from.Place > 0 {
			p.costs[i] = c.Costs[from.Place-1]
		}
	}
	clear(p.each)
	return headgate.Call{Key: key, Costs: p.costs, Each: p.each}
}

// shared is an error if keys have shared a count.
func (l *limits) shared() error {
	if n := l.store.Stats().Shared; n > 0 {
		return fmt.Errorf("%d decisions by a count that keys shared: no figure of them is right", n)
	}
	return nil
}
