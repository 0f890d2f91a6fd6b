package headgate

import (
	"context"
	"errors"
	"slices"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// shadows is how a list with shadow policies is split: into those that decide and those
// that only report.
type shadows struct{ enforced, shadow part }

// part is some of a limiter's policies, with their indexes.
type part struct {
	policies []Policy
	at       []int
}

// newShadows returns nil where no policy is a shadow.
func newShadows(policies []Policy) *shadows {
	if !slices.ContainsFunc(policies, func(p Policy) bool { return p.Shadow }) {
		return nil // without an allocation: a list may be made for each call
	}
	s := &shadows{}
	for i := range policies {
		p := &s.enforced
		if policies[i].Shadow {
			p = &s.shadow
		}
		p.policies, p.at = append(p.policies, policies[i]), append(p.at, i)
	}
	return s
}

// both asks the enforced and the shadow policies as two requests in one batch. Only
// the enforced ones make the decision.
func (l *Limiter) both(ctx context.Context, q *question) error {
	r, s := &q.request, l.shadows
	if err := l.check(ctx, r); err != nil { // mutant: refused-counts-no-shadow
		return err
	}
	var rs [2]backend.Request
	var answers [2]layer.Answer
	asked := rs[:0]
	if s.enforced.at != nil {
		asked = append(asked, s.enforced.of(r))
	}
	asked = append(asked, s.shadow.of(r))
	shadow := &asked[len(asked)-1]
	q.apart(shadow)
	l.askAll(ctx, asked, answers[:len(asked)])
	of := &answers[len(asked)-1]
	if r.Op == backend.Reserve && q.subs != nil {
		q.subs.shadow = shadow.Receipt.Sub
	}
	q.shadow = s.shadow.shadowed(of)
	if of.Err != nil { // or the states would be those of an earlier call
		uncounted(shadow)
	}
	for i := range asked {
		l.part(i, len(asked)).tell(r, asked[i].Each)
	}
	if s.enforced.at == nil {
		return alone(r, of, &q.decision)
	}
	q.decision = answers[0].Decision
	if r.Op == backend.Record { // which passes, also where it peeked at a count above its limit
		q.decision.Allowed, q.decision.RetryAfter = answers[0].Err == nil, 0 // mutant: free-record-passes
	}
	if r.Op == backend.Reserve && of.Decision.Allowed && !q.decision.Allowed { // mutant: shadow-lease-cancelled
		l.cancelShadow(shadow)
	}
	return answers[0].Err
}

// uncounted makes the states those of policies that nobody counted.
func uncounted(r *backend.Request) {
	for i := range r.Each {
		p := &r.Policies[i]
		r.Each[i] = State{Policy: p.Name, Limit: p.Algorithm.Max()}
	}
}

// check refuses a request before anything is asked.
func (l *Limiter) check(ctx context.Context, r *backend.Request) error {
	switch {
	case l.shadows == nil:
		return l.shard.CheckRequest(ctx, r)
	case r.Op == backend.Settle || r.Op == backend.Extend || l.misfits(r): // mutant: refused-settles-no-part
		return r.Check(ctx, l.shard.Capabilities())
	}
	p := &l.shadows.enforced
	if p.at == nil {
		p = &l.shadows.shadow
	}
	q := p.of(r)
	err := l.shard.CheckRequest(ctx, &q)
	if p == &l.shadows.shadow && errors.Is(err, ErrNeverAdmissible) { // mutant: shadow-admits-any-cost
		return nil // a shadow denies nothing
	}
	return err
}

// misfits reports whether a request fits no list of policies as it is, has a negative
// cost, or charges nothing: a part of it alone might pass.
func (l *Limiter) misfits(r *backend.Request) bool {
	n := len(l.policies)
	switch {
	case r.Costs != nil && len(r.Costs) != n || r.Each != nil && len(r.Each) != n:
		return true
	case r.Costs == nil:
		return false
	case slices.Min(r.Costs) < 0: // mutant: negative-shadow-cost
		return true
	}
	return r.Op != backend.Peek && slices.Max(r.Costs) == 0 // mutant: costs-of-zero
}

// apart gives the shadows' request a lease of its own, at a sub-key of its own.
func (q *question) apart(shadow *backend.Request) {
	shadow.Receipt = nil
	if q.subs != nil {
		shadow.Receipt, shadow.Sub = &backend.Receipt{}, q.subs.shadow // mutant: shadow-sub-key
	}
	if shadow.Lease != nil {
		shadow.Lease.ID[0] ^= 0x80
	}
}

// askAll asks all of the requests.
func (l *Limiter) askAll(ctx context.Context, rs []backend.Request, answers []layer.Answer) {
	if l.denial != nil {
		l.denial.DoAll(ctx, rs, answers)
		return
	}
	l.shard.DoAll(ctx, rs, answers)
}

// part returns the policies of the i-th of so many requests.
func (l *Limiter) part(i, of int) *part {
	if i == of-1 {
		return &l.shadows.shadow
	}
	return &l.shadows.enforced
}

// shadowed returns what an observer receives of the shadow policies' answer.
func (p *part) shadowed(a *layer.Answer) *Decision {
	d := a.Decision
	if a.Err != nil {
		d = Decision{Err: a.Err, State: State{Policy: p.policies[0].Name, Limit: p.policies[0].Algorithm.Max()}}
	}
	return &d
}

// alone answers for a list of shadow policies only: the call passes.
func alone(r *backend.Request, a *layer.Answer, d *Decision) error {
	if errors.Is(a.Err, ErrNotHeld) && r.Op != backend.Reserve { // mutant: denied-shadow-settles
		return nil // the shadows may have denied the Reserve, which passed
	}
	if a.Err != nil && !backend.Undecided(a.Err) && !errors.Is(a.Err, ErrNeverAdmissible) {
		return a.Err
	}
	*d = a.Decision
	d.Allowed, d.RetryAfter, d.Granted = true, 0, r.Granted() // mutant: shadow-grants-all
	if d.State.Policy == "" {
		p := &r.Policies[0]
		d.State, d.Source, d.Estimated, d.Err = State{Policy: p.Name, Limit: p.Algorithm.Max()}, backend.FromFailOpen, true, a.Err
	}
	return nil
}

// of returns the part's request, with states of its own.
func (p *part) of(r *backend.Request) backend.Request {
	q := *r
	q.Policies, q.Each = p.policies, make([]State, len(p.at))
	charged := r.Costs == nil
	if r.Costs != nil {
		q.Costs = make([]int64, len(p.at))
		for i, j := range p.at {
			q.Costs[i] = r.Costs[j]
			charged = charged || q.Costs[i] > 0
		}
	}
	if r.Lease != nil {
		q.Lease = p.lease(r.Lease)
	}
	switch { // the other part is charged
	case charged:
	case r.Op == backend.Take || r.Op == backend.Record: // mutant: free-part-peeks
		q.Op = backend.Peek
	case r.Op == backend.Reserve: // which keeps a lease, since a Commit may charge more
		q.Lease.Free = true // mutant: free-part-reserves
	}
	return q
}

func (p *part) lease(l *backend.Lease) *backend.Lease {
	own := *l
	if l.Actual != nil {
		own.Actual = make([]int64, len(p.at))
		for i, j := range p.at {
			own.Actual[i] = l.Actual[j]
		}
	}
	return &own
}

// tell writes the part's states in the limiter's order.
func (p *part) tell(r *backend.Request, states []State) {
	if r.Each == nil {
		return
	}
	for i, j := range p.at {
		r.Each[j] = states[i]
	}
}

// cancelShadow gives back what a shadow reserved for a call that was denied, in the
// background: the call has one budget.
func (l *Limiter) cancelShadow(r *backend.Request) {
	q := backend.Request{Op: backend.Settle, Group: backend.Group{Key: r.Key, Sub: r.Sub, Policies: r.Policies}}
	if r.Receipt != nil {
		q.Sub = r.Receipt.Sub
	}
	q.Lease = &backend.Lease{ID: r.Lease.ID, Length: r.Lease.Length, Attempt: r.Lease.ID}
	l.abandoned.start(func() { _, _ = layer.Ask(context.Background(), l.shard, q) })
}
