package otellimit

import (
	"sync/atomic"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// maxPolicies is the maximum number of policy names that metrics distinguish.
const maxPolicies = 100

// policies are those of the calls so far, by name, with the latest algorithm.
type policies struct {
	names cache[string, *latest]
}

// latest is a pointer, so that it is swapped without the lock of the cache.
type latest struct{ atomic.Pointer[algo.Algorithm] }

// seen notes the policies of a call. It writes only where an algorithm differs,
// so that calls of one limiter share the cache line for reading.
func (p *policies) seen(list []headgate.Policy) {
	for i := range list {
		latest, ok := p.names.of(list[i].Name, maxPolicies, func() *latest { return new(latest) })
		if !ok {
			continue
		}
		if a := latest.Load(); a == nil || *a != list[i].Algorithm {
			a := list[i].Algorithm
			latest.Store(&a)
		}
	}
}

// label returns the name as an attribute's value. The shadow of a call of several keys may
// be a policy of another key than that of the event.
func (p *policies) label(name string) string {
	if name == "" {
		return name
	}
	if _, ok := p.names.of(name, maxPolicies, func() *latest { return new(latest) }); !ok {
		return other
	}
	return name
}

// observe reports the policies of calls so far. A policy that no call has used
// is not known here: limiters report events, not their lists.
func (p *policies) observe(
	m *Metrics, o metric.Observer, limit metric.Int64Observable, period metric.Float64Observable,
) {
	for name, latest := range p.names.all() {
		a := latest.Load()
		if a == nil { // a call is about to store it, or no event had it
			continue
		}
		set := m.set(attribute.String("headgate.policy", name), attribute.String("headgate.algorithm", a.Kind().String()))
		o.ObserveInt64(limit, a.Max(), set)
		if !a.Kind().Leased() { // whose slots come back when calls end
			o.ObserveFloat64(period, fill(a), set)
		}
	}
}

// fill returns the seconds in which a.Max units come back. Of a TokenBucket or a LeakyQueue
// that is the time in which it fills: its period is that of the rate.
func fill(a *algo.Algorithm) float64 {
	l := a.Limit()
	if a.Kind().Rates() {
		return l.Period.Seconds() * float64(a.Max()) / float64(l.Events)
	}
	return l.Period.Seconds()
}
