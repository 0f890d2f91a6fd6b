package main

import (
	"fmt"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/cmd/headgated/internal/resp"
	"github.com/headgate-go/headgate/policyfile"
)

// failureModes are the words of -on-failure; without one it is 0.
var failureModes = map[string]headgate.FailureMode{
	"open": headgate.FailOpen, "closed": headgate.FailClosed, "local": headgate.FailLocal,
}

// openRESP makes the server of the Redis protocol, and follows the policies of its plans.
func (v *server) openRESP(base *headgate.Limiter) error {
	s := v.settings
	if s.resp == "" {
		return nil
	}
	opts := resp.Options{Base: base, OnFailure: failureModes[s.onFailure], MaxBytes: s.maxMessage, Slots: v.slots, Observe: v.metrics.command,
		TLS: v.admittance.tls(), Password: v.admittance.password}
	if s.policies != "" {
		w, err := policyfile.Watch(s.policies, v.store.counts, &policyfile.Options{
			OnFailure: failureModes[s.onFailure], Reserves: true, First: true, Interval: s.interval, Limiter: v.limiterOptions(),
			Reloaded: func(err error) {
				//mutant:failed-policies-counted
				v.metrics.load("policies", err)
				if err != nil {
					v.log.Error("policies: the file is not used, that before it is", "error", err)
				}
			},
		})
		if err != nil {
			return fmt.Errorf("-policies: %w", err)
		}
		v.metrics.load("policies", nil)
		v.policies, opts.Plan = w, planOf(w)
	}
	if err := v.open("resp", s.resp); err != nil {
		return err
	}
	v.resp = resp.New(opts)
	return nil
}

// limiterOfPlans returns a limiter of any plan, whose Stats are those of all plans; nil if
// no plan has limits now.
func (v *server) limiterOfPlans() *headgate.Limiter {
	if v.policies == nil {
		return nil
	}
	for _, name := range append(v.policies.File().Plans(), "") {
		if parts, err := v.policies.Limiters().PlanFirst(name, "", policyfile.Use{}); err == nil && len(parts) > 0 {
			return parts[0].Limiter
		}
	}
	return nil
}

// planOf returns what finds the alternatives of a plan. Policies with per are not in them.
func planOf(w *policyfile.Watcher) func(name, key string) ([]headgate.Part, error) {
	return func(name, key string) ([]headgate.Part, error) {
		return w.Limiters().PlanFirst(name, key, policyfile.Use{})
	}
}

// command counts a command of the Redis protocol.
func (m *metrics) command(name string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.commands.WithLabelValues(name, result).Inc()
}
