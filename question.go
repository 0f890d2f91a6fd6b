package headgate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/event"
)

// question is what the layers exchange. They keep nothing of it, so that it
// serves one call after the other.
type question struct {
	request   backend.Request
	decision  Decision
	storeTime atomic.Int64
	waited    time.Duration
	behind    int64      // calls of the same take that came after this one
	limiters  []*Limiter // of each group of a question of parts, else nil
	of        []int      // the part that each belongs to; nil: each is a part
	first     bool       // a First
	states    []State    // for an event, where the caller wants none
}

var questions = sync.Pool{New: func() any { return new(question) }}

func (l *Limiter) ask(op backend.Op, key string) *question {
	q := questions.Get().(*question)
	q.request.Op, q.request.Key = op, key
	if l != nil {
		q.request.Policies, q.request.Shards, q.request.Borrow = l.policies, l.shards, l.term
	}
	return q
}

// do passes the question to the layers and writes the decision to the zero d. The
// question goes back to the pool.
func (l *Limiter) do(ctx context.Context, q *question, d *Decision) error {
	if l != nil && l.observer != nil {
		return l.observed(ctx, q, d)
	}
	return l.unobserved(ctx, q, d)
}

// unobserved is do without an event.
func (l *Limiter) unobserved(ctx context.Context, q *question, d *Decision) error {
	err := l.hand(ctx, q)
	if err == nil {
		q.answer(d)
		l.count(q.request.Op, q.request.Key, d)
	}
	q.free()
	return err
}

// observed is do with an event for the observer.
func (l *Limiter) observed(ctx context.Context, q *question, d *Decision) error {
	begin := time.Now()
	q.storeTime.Store(0) // here, since other calls need no atomic store
	q.observe(l, &q.request.Group, false)
	err := l.hand(ctx, q)
	if err == nil {
		q.answer(d)
		l.count(q.request.Op, q.request.Key, d)
	}
	l.observe(q, time.Since(begin), err)
	q.free()
	return err
}

// answer writes the decision to d. A denial that is known to stand is no error, also if the call
// was perhaps counted. For a caller that asks again or has a lease to settle it is one. The event
// has the error.
func (q *question) answer(d *Decision) {
	*d = q.decision
	//mutant:at-is-a-part
	d.At = q.partOf(d.At)
	//mutant:what-stands-is-no-error
	if d.Source == FromDenyCache && !q.request.Again && !q.request.Op.Opens() {
		d.Err = nil
	}
}

// partOf returns the index of the caller's part that the i-th key belongs to.
func (q *question) partOf(i int) int {
	if q.of == nil {
		return i
	}
	return q.of[i]
}

// group returns the group of a call, with what the limiter brings to the layers.
func (l *Limiter) group(c *Call) *backend.Group {
	return &backend.Group{Key: c.Key, Policies: l.policies, Shards: l.shards, Borrow: l.term, Cost: 1, Costs: c.Costs, Each: c.Each, Via: l.free}
}

// count counts what became of a call, beside the place that makes its event. It is short, so that
// it is inlined for calls that pass.
func (l *Limiter) count(op backend.Op, key string, d *Decision) {
	//mutant:looks-are-no-calls
	if (!d.Allowed || l.adapter.Counts()) && (op == backend.Take || op == backend.Reserve) {
		l.adapter.Count(key, d, l.near)
	}
}

// observe makes room for what the event wants of the limiter's group.
func (q *question) observe(l *Limiter, g *backend.Group, several bool) {
	q.request.StoreTime = &q.storeTime
	if event.Wants(q.request.Op, g, l.near, several) {
		q.states = append(q.states, make([]State, len(g.Policies))...)
		g.Each = q.states[len(q.states)-len(g.Policies):]
	}
}

// observe passes the observer the event of a call. It is the only place that makes one of a call.
func (l *Limiter) observe(q *question, took time.Duration, err error) {
	r, d := &q.request, &q.decision
	e := Event{
		Type: EventDecision, Op: r.Op, Key: r.GroupAt(d.At).Key, Policies: l.policies, Err: err,
		Duration: took, StoreTime: time.Duration(q.storeTime.Load()), Waited: q.waited,
	}
	if r.UpTo {
		e.Op = backend.AtMost
	}
	if err == nil {
		e.Decision = *d
		//mutant:event-at-is-a-part
		e.Decision.At = q.partOf(d.At)
	}
	from, to := r.Alternative(d.At)
	//mutant:event-of-charged-part
	for i := from; i < to; i++ {
		of, g := l, r.GroupAt(i)
		if q.limiters != nil {
			of = q.limiters[i]
		}
		if err != nil || of.observer == nil {
			continue
		}
		e.Near = event.Near(e.Near, of.near, q.behind, r.Op, g, d)
		if s := event.Shadow(e.Shadow, r.Op, g, d); s != e.Shadow {
			e.Shadow = s
			if r.And != nil {
				//mutant:shadow-at-is-a-part
				s.Key, s.At = g.Key, q.partOf(i)
			}
		}
	}
	l.notify(&e)
}

// borrowed passes the observer an event of what calls used that were decided from a loan, if
// that has raised a count to the share.
func (l *Limiter) borrowed(charged int64, r *backend.Request, d *backend.Decision) {
	if l.observer == nil {
		return
	}
	if near := event.NearOfLoan(l.near, charged, &r.Group, d); near != nil {
		l.notify(&Event{Type: EventNear, Key: r.Key, Policies: r.Policies, Near: near})
	}
}

// notify passes the observer an event. A panic of the observer is not the call's.
func (l *Limiter) notify(e *Event) {
	defer func() { _ = recover() }()
	l.observer(*e)
}

// refused returns err with an event of it, for a call that no layer was asked.
func (l *Limiter) refused(op backend.Op, key string, err error) error {
	if l != nil && l.observer != nil {
		l.observe(&question{request: backend.Request{Op: op, Group: backend.Group{Key: key}}}, 0, err)
	}
	return err
}

func (q *question) free() {
	q.states = q.states[:0]
	//mutant:call-cleared
	q.request, q.decision = backend.Request{}, Decision{} // or it would keep the caller's key
	questions.Put(q)
}

// hand passes a question to the outermost layer.
func (l *Limiter) hand(ctx context.Context, q *question) error {
	switch {
	case l.zero():
		return errZero
	case ctx == nil:
		return backend.CheckContext(ctx) // here, since a wrapper may use it before the store checks the request
	}
	return l.free.Do(ctx, &q.request, &q.decision)
}
