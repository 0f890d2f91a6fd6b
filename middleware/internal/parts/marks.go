package parts

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/internal/adapter"
)

// The requests that a handler marks: a mark costs two allocations.
const (
	firstMarked = 100
	oneMarkedIn = 1000
)

// Marks finds requests that two handlers charge to one count. Each handler has its own
// Marks. A request carries a mark with the parts that outer handlers have charged. The
// zero Marks is ready; do not copy it.
type Marks struct {
	requests atomic.Uint64
	warned   sync.Map // *Marks of an outer handler: reported
}

// mark is a context with the parts that a handler charges.
type mark struct {
	context.Context
	of    *Marks
	parts []headgate.Part
	one   [1]headgate.Part // the room for parts, if it is one
	outer *mark
}

type markKey struct{}

func (m *mark) Value(key any) any {
	if key == (markKey{}) {
		return m
	}
	return m.Context.Value(key)
}

// Meet warns if an outer handler has charged a count of the parts. It returns ctx, with
// a mark if the request is one of those that carry it.
func (m *Marks) Meet(ctx context.Context, list []headgate.Part) context.Context {
	outer, _ := ctx.Value(markKey{}).(*mark)
	for o := outer; o != nil; o = o.outer {
		m.compare(o, list)
	}
	if n := m.requests.Add(1); n > firstMarked && n%oneMarkedIn != 0 {
		return ctx
	}
	made := &mark{Context: ctx, of: m, outer: outer}
	made.parts = append(made.one[:0], list...)
	for i := range made.parts {
		made.parts[i].Call.Each = nil // the handler's, for the next request
	}
	return made
}

// MarksOf returns the Marks of calls that no handler of ours decides, by a limiter.
func MarksOf(l *headgate.Limiter) *Marks {
	type key struct{}
	return adapter.Of(l).Value(key{}, func() any { return new(Marks) }).(*Marks)
}

// compare warns once per pair of handlers.
func (m *Marks) compare(o *mark, list []headgate.Part) {
	for _, p := range list {
		for _, q := range o.parts {
			policy, twice := Twice(&p, &q)
			if !twice {
				continue
			}
			//mutant:double-count-once
			if _, known := m.warned.LoadOrStore(o.of, true); known {
				return
			}
			adapter.Of(p.Limiter).Logger().Warn("headgate: two middlewares charge one count, so each request counts twice; "+
				"give the second limiter's policy another name", "policy", policy,
				"outer policies", names(q.Limiter), "inner policies", names(p.Limiter))
			return
		}
	}
}

// names returns the names of a limiter's policies.
func names(l *headgate.Limiter) []string {
	var all []string
	for _, p := range l.Policies() {
		all = append(all, p.Name)
	}
	return slices.Clip(all)
}
