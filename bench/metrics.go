package main

import (
	"time"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/report"
)

// The metrics, by which figures are known.
const (
	decisions   = "decisions"
	serverCPU   = "server CPU"
	clientCPU   = "client CPU"
	allocations = "allocations"
	bytesKey    = "bytes a key"
	scripts     = "scripts at the server"
	connections = "connections"
	gcShare     = "collector"
	p50         = "p50"
	p99         = "p99"
	p999        = "p99.9"
)

var units = map[string]string{
	decisions: "decisions/s", serverCPU: "µs a decision", clientCPU: "µs a decision",
	allocations: "allocations a decision", bytesKey: "bytes", scripts: "EVALSHA/s",
	connections: "connections", gcShare: "% of all CPU", p50: "µs", p99: "µs", p999: "µs",
}

// metric is one with its targets. Of most, less is better.
func metric(name string, targets ...report.Target) report.Metric {
	return report.Metric{Name: name, Unit: units[name], Lower: name != decisions, Targets: targets}
}

// drawn is one that is shown in a picture.
func drawn(chart string, m report.Metric) report.Metric {
	m.Chart = chart
	return m
}

func atLeast(bound float64, of, against string) report.Target {
	return report.Target{Of: of, Against: against, AtLeast: true, Bound: bound}
}

func atMost(bound float64, of, against string) report.Target {
	return report.Target{Of: of, Against: against, Bound: bound}
}

// beats is for Headgate's decisions/s on Redis.
func beats(bound float64, peer string) report.Target { return atLeast(bound, "headgate", peer) }

// within is for what Headgate takes.
func within(bound float64, peer string) report.Target { return atMost(bound, "headgate", peer) }

// waits are a sample's quantiles in µs.
func waits(s *load.Sample) map[string]float64 {
	us := func(q float64) float64 { return float64(load.Quantile(s.Waits, q)) / float64(time.Microsecond) }
	return map[string]float64{p50: us(0.50), p99: us(0.99), p999: us(0.999)}
}
