package main

import (
	"log/slog"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/cmd/headgated/internal/bounded"
	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"github.com/headgate-go/headgate/middleware/otellimit"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/protobuf/proto"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	limitpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
)

// metrics are the server's. The store's are otellimit's, in the same registry.
type metrics struct {
	registry    *prometheus.Registry
	limiters    *otellimit.Metrics
	requests    [rls.Outcomes]prometheus.Counter
	domains     prometheus.Counter
	loads       *prometheus.CounterVec
	loaded      *prometheus.GaugeVec
	refused     *prometheus.GaugeVec
	commands    *prometheus.CounterVec
	invalid     *prometheus.CounterVec
	unknown     *prometheus.CounterVec
	negative    prometheus.Counter
	notices     notices
	descriptors series
}

var outcomeNames = [rls.Outcomes]string{
	rls.OK: "ok", rls.OverLimit: "over_limit", rls.ShadowOverLimit: "shadow_over_limit",
	rls.Undecided: "undecided", rls.Invalid: "invalid", rls.CallerLeft: "caller_left",
}

func newMetrics(log *slog.Logger) (*metrics, error) {
	m := &metrics{registry: prometheus.NewRegistry(), notices: notices{log: log}}
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
	m.descriptors.vec = vec("headgated_descriptor_decisions_total", "Descriptors that have a limit, by their decision.", "descriptor", "result")
	m.domains = prometheus.NewCounter(prometheus.CounterOpts{Name: "headgated_unknown_domains_total", Help: "Requests of a domain that no file has."})
	m.invalid = vec("headgated_invalid_requests_total", "Requests that were refused as invalid, by reason. The proxy may have let them pass.", "reason")
	for _, reason := range rls.Reasons {
		m.invalid.WithLabelValues(string(reason)) // 0 until there is one
	}
	m.negative = prometheus.NewCounter(prometheus.CounterOpts{Name: "headgated_negative_hits_total", Help: "Descriptors whose hits are negative. They are returned: taken out of what is counted."})
	m.unknown = vec("headgated_unknown_fields_total", "Fields that are newer than this server, by the message that has them.", "message")
	for _, message := range []proto.Message{&rlspb.RateLimitRequest{}, &limitpb.RateLimitConfig{}} {
		m.unknown.WithLabelValues(string(message.ProtoReflect().Descriptor().FullName()))
	}
	m.loads = vec("headgated_config_loads_total", "Readings of changed files: limits, or policies.", "files", "result")
	m.loaded = gauge("headgated_config_loaded_timestamp_seconds", "When the files in use were loaded.", "files")
	m.refused = gauge("headgated_config_refused", "1 if the files as they are now are not used, since they are invalid.", "files")
	m.commands = vec("headgated_resp_commands_total", "Commands of the Redis protocol.", "command", "result")
	m.registry.MustRegister(requests, m.descriptors.vec, m.domains, m.loads, m.loaded, m.refused, m.commands, m.invalid, m.negative, m.unknown,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m, nil
}

// listener shows the connections of an address, by its flag.
func (m *metrics) listener(flag string, stats func() bounded.Stats) {
	labels := prometheus.Labels{"listener": flag}
	gauge := func(name, help string, value func(bounded.Stats) int) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return float64(value(stats())) }))
	}
	counter := func(name, help string, value func(bounded.Stats) int64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return float64(value(stats())) }))
	}
	gauge("headgated_connections", "Open connections.", func(s bounded.Stats) int { return s.Open })
	gauge("headgated_connections_bound", "How many connections may be open.", func(s bounded.Stats) int { return s.Most })
	counter("headgated_connections_at_bound_total", "Connections that came when as many were open as may be.", func(s bounded.Stats) int64 { return s.AtBound })
	counter("headgated_connections_closed_total", "Connections that were idle longest, and were closed for new ones.", func(s bounded.Stats) int64 { return s.Closed })
}

// memory shows how full a store in memory is, and what became of its file.
func (m *metrics) memory(stats func() memory.Stats) {
	gauge := func(name, help string, value func(memory.Stats) float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(stats()) }))
	}
	gauge("headgated_memory_counts", "Counts in memory.", func(s memory.Stats) float64 { return float64(s.Counts) })
	gauge("headgated_memory_counts_bound", "How many counts may be in memory.", func(s memory.Stats) float64 { return float64(s.MaxCounts) })
	gauge("headgated_memory_file_written_timestamp_seconds", "When the file of -memory-file was written; 0: not yet, or there is none.", func(s memory.Stats) float64 {
		if s.File.Written.IsZero() {
			return 0
		}
		return float64(s.File.Written.UnixMilli()) / 1000
	})
	gauge("headgated_memory_file_failed", "1 if the last write of the file of -memory-file failed.", func(s memory.Stats) float64 {
		//mutant:memory-file-failed
		if s.File.Err != nil {
			return 1
		}
		return 0
	})
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "headgated_memory_shared_total", Help: "Decisions by a count that new keys of a descriptor share, since there was no free one."},
		func() float64 { return float64(stats().Shared) }))
}

// expiry shows when the certificate of the listeners ends.
func (m *metrics) expiry(at func() int64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "headgated_certificate_expiry_timestamp_seconds", Help: "When the certificate of the listeners ends; 0 if there is none."},
		func() float64 { return float64(at()) }))
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
func (m *metrics) Descriptor(path, label string, o rls.Outcome) { m.descriptors.add(path, label, o) }
