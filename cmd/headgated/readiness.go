package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate"
	"google.golang.org/grpc/health"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// readiness follows the store and the failure mode. Where requests do not pass without a
// store, the server is not ready until the store has answered once, and while every circuit
// is open.
type readiness struct {
	base     *headgate.Limiter
	watcher  *watcher
	health   *health.Server
	mode     string      // of limits that name none
	limits   bool        // there are files of limits
	reached  atomic.Bool // the store has answered
	probes   atomic.Int64
	draining atomic.Bool
	ready    atomic.Bool
}

// serviceName is the name under which envoyproxy/ratelimit reports its health.
const serviceName = "ratelimit"

// probePolicy is the name of the policy that probes peek at.
const probePolicy = "ready"

// firstProbe is how long the start waits for the store.
const firstProbe = 100 * time.Millisecond

func newReadiness(base *headgate.Limiter, w *watcher, s *settings) *readiness {
	r := &readiness{base: base, watcher: w, health: health.NewServer(), mode: s.onFailure, limits: s.limited()}
	ctx, cancel := context.WithTimeout(context.Background(), firstProbe)
	defer cancel()
	r.update(ctx)
	return r
}

// follow updates the answers until ctx ends.
func (r *readiness) follow(ctx context.Context) {
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			r.update(ctx)
		}
	}
}

// update looks at the circuits. Until the store has answered, and while all circuits are
// open, it sends a request, so that a server without requests finds the store.
func (r *readiness) update(ctx context.Context) {
	if r.draining.Load() {
		return
	}
	ready := !r.limits || r.watcher.now.Load() != nil
	//mutant:ready-after-an-answer
	if !r.passes() && (!r.reached.Load() || r.down()) {
		r.probe(ctx)
		ready = ready && r.reached.Load() && !r.down()
	}
	r.set(ready)
}

// probe sends a request. Each has a key of its own, since a node of a cluster may be dead
// and the others serve.
func (r *readiness) probe(ctx context.Context) {
	d, err := r.base.Peek(ctx, headgate.Call{Key: fmt.Sprint("headgated:", r.probes.Add(1)%64)})
	if err == nil && d.Source == headgate.FromStore {
		r.reached.Store(true)
	}
}

// passes reports whether requests pass while no store decides: by the flag, or since each
// limit in use names a mode that lets them.
func (r *readiness) passes() bool {
	if r.mode == "open" || r.mode == "local" {
		return true
	}
	config := r.watcher.now.Load()
	return config != nil && config.Passes()
}

func (r *readiness) set(ready bool) {
	if r.ready.Store(ready); r.draining.Load() { // meanwhile
		r.ready.Store(false)
	}
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthpb.HealthCheckResponse_SERVING
	}
	r.health.SetServingStatus("", status)
	r.health.SetServingStatus(serviceName, status)
}

// down reports whether every circuit is open.
func (r *readiness) down() bool {
	circuits := r.base.Stats().Circuits
	for _, state := range circuits {
		if state != "open" {
			return false
		}
	}
	return len(circuits) > 0
}

// drain makes the answers negative for good.
func (r *readiness) drain() {
	r.draining.Store(true)
	r.ready.Store(false)
	r.health.Shutdown()
}
