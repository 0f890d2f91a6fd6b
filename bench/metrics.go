package main

import (
	"time"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/report"
)

// The metrics by which a turn's figures are found. A name stands in the
// document.
const (
	decisions   = "decisions"
	allocations = "allocations"
	bytesKey    = "bytes per key"
	p50         = "p50"
	p99         = "p99"
	clientCPU   = "CPU of the client"
	serverCPU   = "CPU of the server"
	scriptTime  = "server's time of an EVALSHA"
)

var units = map[string]string{
	decisions: "per second", allocations: "per decision", bytesKey: "bytes", p50: "µs", p99: "µs",
	clientCPU: "µs per decision", serverCPU: "µs per decision", scriptTime: "µs",
}

// metric is a metric with its targets. Less is better of all but decisions.
func metric(name string, targets ...report.Target) report.Metric {
	return report.Metric{Name: name, Unit: units[name], Lower: name != decisions, Targets: targets}
}

func atMost(bound float64, of, against string) report.Target {
	return report.Target{Of: of, Against: against, Bound: bound}
}

// within is a target for what Headgate takes: its ratio to the peer, or,
// without a peer, the figure itself.
func within(bound float64, peer string) report.Target { return atMost(bound, ours, peer) }

// beats is for Headgate's decisions per second.
func beats(bound float64, peer string) report.Target {
	return report.Target{Of: ours, Against: peer, AtLeast: true, Bound: bound}
}

// published is a ratio that is shown without a bound, so it counts neither as
// held nor as missed.
func published(peer string) report.Target {
	return report.Target{Of: ours, Against: peer, Published: true}
}

// waits are a sample's quantiles in µs.
func waits(s *load.Sample) map[string]float64 {
	us := func(q float64) float64 { return float64(load.Quantile(s.Waits, q)) / float64(time.Microsecond) }
	return map[string]float64{p50: us(0.50), p99: us(0.99)}
}
