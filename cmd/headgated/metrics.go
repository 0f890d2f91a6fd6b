package main

import (
	"sync"
	"sync/atomic"

	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"github.com/headgate-go/headgate/middleware/otellimit"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

// maxDescriptors is the number of descriptors with series of their own. The others
// share one, named otherDescriptors.
const (
	maxDescriptors   = 1000 / 3 // a series per outcome: 1,000 in all
	otherDescriptors = "_OTHER"
)

// metrics are the server's. The store's are otellimit's, in the same registry.
type metrics struct {
	registry    *prometheus.Registry
	limiters    *otellimit.Metrics
	requests    [rls.Outcomes]prometheus.Counter
	decisions   *prometheus.CounterVec
	domains     prometheus.Counter
	loads       *prometheus.CounterVec
	loaded      *prometheus.GaugeVec
	refused     *prometheus.GaugeVec
	commands    *prometheus.CounterVec
	descriptors sync.Map // label → *[rls.Outcomes]prometheus.Counter
	distinct    atomic.Int64
}

var outcomeNames = [rls.Outcomes]string{
	rls.OK: "ok", rls.OverLimit: "over_limit", rls.ShadowOverLimit: "shadow_over_limit",
	rls.Undecided: "undecided", rls.Invalid: "invalid", rls.CallerLeft: "caller_left",
}

func newMetrics() (*metrics, error) {
	m := &metrics{registry: prometheus.NewRegistry()}
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(m.registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	if m.limiters, err = otellimit.New(sdk.NewMeterProvider(sdk.WithReader(exporter)), nil); err != nil {
		return nil, err
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	requests := vec("headgated_requests_total", "Requests, by what became of them. A caller_left may have failed open at the proxy.", "result")
	for i := range m.requests {
		if rls.Outcome(i) != rls.ShadowOverLimit {
			m.requests[i] = requests.WithLabelValues(outcomeNames[i])
		}
	}
	m.decisions = vec("headgated_descriptor_decisions_total", "Descriptors that have a limit, by their decision.", "descriptor", "result")
	m.domains = prometheus.NewCounter(prometheus.CounterOpts{Name: "headgated_unknown_domains_total", Help: "Requests of a domain that no file has."})
	m.loads = vec("headgated_config_loads_total", "Readings of changed files: limits, or policies.", "files", "result")
	m.loaded = gauge("headgated_config_loaded_timestamp_seconds", "When the files in use were loaded.", "files")
	m.refused = gauge("headgated_config_refused", "1 if the files as they are now are not used, since they are invalid.", "files")
	m.commands = vec("headgated_resp_commands_total", "Commands of the Redis protocol.", "command", "result")
	m.registry.MustRegister(requests, m.decisions, m.domains, m.loads, m.loaded, m.refused, m.commands,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m, nil
}

// load counts a reading of changed files, "limits" or "policies". After an error those from
// before are in use.
func (m *metrics) load(files string, err error) {
	result, refused := "ok", 0.0
	if err != nil {
		result, refused = "error", 1
	} else {
		m.loaded.WithLabelValues(files).SetToCurrentTime()
	}
	m.loads.WithLabelValues(files, result).Inc()
	m.refused.WithLabelValues(files).Set(refused)
}

// Request implements rls.Observer.
func (m *metrics) Request(o rls.Outcome) { m.requests[o].Inc() }

// UnknownDomain implements rls.Observer.
func (m *metrics) UnknownDomain() { m.domains.Inc() }

// Descriptor implements rls.Observer.
func (m *metrics) Descriptor(label string, o rls.Outcome) {
	c, ok := m.descriptors.Load(label)
	if !ok {
		c = m.series(label)
	}
	c.(*[rls.ShadowOverLimit + 1]prometheus.Counter)[o].Inc()
}

// series returns the counters of a label, which are made once.
func (m *metrics) series(label string) any {
	if label != otherDescriptors && m.distinct.Add(1) > maxDescriptors {
		m.distinct.Add(-1)
		return m.other()
	}
	var c [rls.ShadowOverLimit + 1]prometheus.Counter
	for i := range c {
		c[i] = m.decisions.WithLabelValues(label, outcomeNames[i])
	}
	actual, loaded := m.descriptors.LoadOrStore(label, &c)
	if loaded && label != otherDescriptors { // by another goroutine, which counted it
		m.distinct.Add(-1)
	}
	return actual
}

func (m *metrics) other() any {
	if c, ok := m.descriptors.Load(otherDescriptors); ok {
		return c
	}
	return m.series(otherDescriptors)
}
