package otellimit

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const scope = "github.com/headgate-go/headgate/middleware/otellimit"

// Options are the settings of Metrics; nil is the same as the zero Options.
type Options struct {
	// Attributes are added to each measurement, as a name for the limiter. They
	// must be the same for the life of the process.
	Attributes []attribute.KeyValue
}

// Metrics counts the events of limiters. Make one with New. It is safe for
// concurrent use.
//
// Each limiter that headgate.New returned reports the circuits and batches of
// its store. Two of them on one store need their own Metrics each, with
// Attributes that distinguish them, or each batch counts twice. Limiters that
// With and OnFailure made of one limiter do not.
type Metrics struct {
	attributes []attribute.KeyValue

	decisions     metric.Int64Counter
	shadows       metric.Int64Counter
	storeDuration metric.Float64Histogram
	batchSize     metric.Int64Histogram
	batchDuration metric.Float64Histogram
	changes       metric.Int64Counter
	loads         metric.Int64Counter

	outcomes     cache[outcome, options]
	policies     policies
	nodes        nodes
	file         atomic.Pointer[int64] // 1 if the file as it is now was refused, else 0; nil: no reload yet
	meter        metric.Meter
	registration metric.Registration
	borrows      metric.Registration // of Borrow; nil: it was not called
}

// New returns metrics by the provider's meter; nil is the global provider. An
// error is the provider's.
func New(provider metric.MeterProvider, opts *Options) (*Metrics, error) {
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
	if opts == nil {
		opts = &Options{}
	}
	m := &Metrics{attributes: slices.Clone(opts.Attributes)}
	m.meter = provider.Meter(scope)
	i := instruments{meter: m.meter}
	m.decisions = i.counter("headgate.decisions", "{decision}", "Calls of limiters, by what became of them.")
	m.shadows = i.counter("headgate.shadow.decisions", "{decision}", "What the shadow policies decided, which denied nothing.")
	m.storeDuration = i.seconds("headgate.store.duration", "Time that a call spent in the store.")
	m.batchSize = i.sizes("headgate.batch.size", "{call}", "Calls per round trip to a node.")
	m.batchDuration = i.seconds("headgate.batch.duration", "Round trips to a node.")
	m.changes = i.counter("headgate.circuit.changes", "{change}", "Changes of the circuit of a node.")
	m.loads = i.counter("headgate.config.loads", "{load}", "Reloads of a changed policy file.")
	refused := i.gauge("headgate.config.refused", "{file}", "1 if the policy file as it is now is not used, since it is invalid.")
	state := i.gauge("headgate.circuit.state", "{circuit}", "1 for the state that the circuit of a node is in.")
	limit := i.gauge("headgate.policy.limit", "{unit}", "The units of a policy's limit, or of its burst.")
	period := i.secondsGauge("headgate.policy.period", "The time in which a policy's limit comes back.")
	if len(i.errs) > 0 {
		return nil, errors.Join(i.errs...)
	}
	r, err := i.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		m.nodes.observe(m, o, state)
		m.policies.observe(m, o, limit, period)
		if n := m.file.Load(); n != nil {
			o.ObserveInt64(refused, *n, m.set())
		}
		return nil
	}, state, limit, period, refused)
	if err != nil {
		return nil, err
	}
	m.registration = r
	return m, nil
}

// Close ends the gauges. Events that still come are counted. Of a nil or zero
// Metrics it does nothing.
func (m *Metrics) Close() error {
	if m == nil || m.registration == nil {
		return nil
	}
	err := m.registration.Unregister()
	if m.borrows != nil {
		err = errors.Join(err, m.borrows.Unregister())
	}
	return err
}

// Observe counts an event; it is for headgate.Options.Observer. Of a nil or zero
// Metrics it does nothing.
func (m *Metrics) Observe(e headgate.Event) {
	if m == nil || m.registration == nil {
		return
	}
	switch e.Type {
	case headgate.EventDecision:
		m.decision(&e)
	case headgate.EventCircuit:
		m.nodes.changed(e.Circuit.Node, e.Circuit.To)
		m.changes.Add(context.Background(), 1, m.set(
			attribute.String("headgate.node", m.nodes.label(e.Circuit.Node)),
			attribute.String("headgate.circuit.state", e.Circuit.To)))
	case headgate.EventBatch:
		m.nodes.answered(e.Batch.Node)
		node := m.set(attribute.String("headgate.node", m.nodes.label(e.Batch.Node)))
		m.batchSize.Record(context.Background(), int64(e.Batch.Calls), node)
		m.batchDuration.Record(context.Background(), e.Duration.Seconds(), node)
	}
}

// Reloaded counts a reload of a policy file. It is for Options.Reloaded of package
// policyfile. The argument is nil if the new policies are in use, and else the reason why
// those from before are. Each file needs its own Metrics, with Attributes that distinguish
// them. Of a nil or zero Metrics it does nothing.
func (m *Metrics) Reloaded(err error) {
	if m == nil || m.registration == nil {
		return
	}
	result, refused := "ok", int64(0)
	if err != nil {
		result, refused = "error", 1
	}
	m.file.Store(&refused)
	m.loads.Add(context.Background(), 1, m.set(attribute.String("headgate.result", result)))
}

// decision runs on the path of each call. The shadow policies have a counter of their
// own: what they deny was not denied.
func (m *Metrics) decision(e *headgate.Event) {
	m.policies.seen(e.Policies)
	o := m.outcome(outcomeOf(e, m.policies.label(binding(e))))
	m.decisions.Add(context.Background(), 1, o.add...)
	if e.StoreTime > 0 {
		m.storeDuration.Record(context.Background(), e.StoreTime.Seconds(), o.record...)
	}
	if shadow, ok := shadowOf(e); ok {
		o := m.outcome(outcomeOf(&shadow, m.policies.label(shadow.Decision.Policy)))
		m.shadows.Add(context.Background(), 1, o.add...)
	}
}

// outcome returns the attributes of an outcome. They are made once and found by a
// comparable struct: to build a set for each call would allocate.
func (m *Metrics) outcome(o outcome) options {
	all, _ := m.outcomes.of(o, math.MaxInt, func() options { // there are few: see the package's documentation
		return options{
			[]metric.AddOption{m.set(o.attributes()...)},
			[]metric.RecordOption{m.set(o.storeAttributes()...)},
		}
	})
	return all
}

// options are the attributes of an outcome as the instruments take them.
type options struct {
	add    []metric.AddOption    // of the decision
	record []metric.RecordOption // of the time at the store
}

// set returns the attributes, and those of every measurement, of the user's
// Options.
func (m *Metrics) set(attributes ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(slices.Concat(attributes, m.attributes)...))
}

// binding returns the name of the policy that the answer is by; "" where none
// is. A reset of several policies and a list of shadows have none. An error of a
// list's only policy is counted for that policy.
func binding(e *headgate.Event) string {
	switch {
	case len(e.Policies) > 0 && !slices.ContainsFunc(e.Policies, enforced):
		return ""
	case len(e.Policies) == 1:
		return e.Policies[0].Name
	case e.Op == backend.Reset:
		return ""
	}
	return e.Decision.Policy
}

func enforced(p headgate.Policy) bool { return !p.Shadow }
