package otellimit

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"

	"github.com/headgate-go/headgate"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// labels are the attributes of one measurement; an empty one is left out.
type labels struct {
	op                     headgate.Op
	policy, result, source string
	failure, node, state   string
	algorithm              string
}

// options are labels as the instruments take them, made once: on the path of a
// call they cost a lookup.
type options struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

// with returns the options for l. The values of labels are bounded, so the cache
// is.
func (m *Metrics) with(l labels) options {
	o, _ := m.sets.of(l, math.MaxInt, func() options {
		set := m.set(l)
		return options{[]metric.AddOption{set}, []metric.RecordOption{set}}
	})
	return o
}

func (m *Metrics) set(l labels) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(l.attributes(), m.attributes...)...))
}

func (l *labels) attributes() []attribute.KeyValue {
	var all []attribute.KeyValue
	add := func(key, value string) {
		if value != "" {
			all = append(all, attribute.String(key, value))
		}
	}
	if l.op != 0 {
		add("headgate.operation", l.op.String())
	}
	add("headgate.policy", l.policy)
	add("headgate.result", l.result)
	add("headgate.source", l.source)
	add("error.type", l.failure)
	add("headgate.node", l.node)
	add("headgate.circuit.state", l.state)
	add("headgate.algorithm", l.algorithm)
	return all
}

// cache is a map that is read without a lock and copied for each new entry, of
// which there are few.
type cache[K comparable, V any] struct {
	entries atomic.Pointer[map[K]V]
	mu      sync.Mutex // held to add an entry
}

// get returns the entry of k.
func (c *cache[K, V]) get(k K) (v V, ok bool) {
	if entries := c.entries.Load(); entries != nil {
		v, ok = (*entries)[k]
	}
	return v, ok
}

// of returns the entry of k, and makes it where there is none. It reports false
// where there are most others.
func (c *cache[K, V]) of(k K, most int, create func() V) (v V, ok bool) {
	if v, ok = c.get(k); ok {
		return v, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok = c.get(k); ok || len(c.all()) >= most {
		return v, ok
	}
	entries := maps.Clone(c.all())
	if entries == nil {
		entries = map[K]V{}
	}
	v = create()
	entries[k] = v
	c.entries.Store(&entries)
	return v, true
}

// all returns the entries, which are not written any more.
func (c *cache[K, V]) all() map[K]V {
	if entries := c.entries.Load(); entries != nil {
		return *entries
	}
	return nil
}
