package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate"
	"google.golang.org/grpc/health"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// readiness follows the store and the failure mode: while every circuit is open the
// server is not ready, unless requests pass then.
type readiness struct {
	base     *headgate.Limiter
	watcher  *watcher
	health   *health.Server
	mode     string // of limits that name none
	limits   bool   // there are files of limits
	draining atomic.Bool
	ready    atomic.Bool
}

// serviceName is the name under which envoyproxy/ratelimit reports its health.
const serviceName = "ratelimit"

func newReadiness(base *headgate.Limiter, w *watcher, s *settings) *readiness {
	r := &readiness{base: base, watcher: w, health: health.NewServer(), mode: s.onFailure, limits: s.limited()}
	r.update(context.Background())
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

// update looks at the circuits. While all are open it asks the store, so that a server
// which gets no requests for that reason finds the store again.
func (r *readiness) update(ctx context.Context) {
	if r.draining.Load() {
		return
	}
	ready := !r.limits || r.watcher.now.Load() != nil
	if !r.passes() && r.down() {
		_, _ = r.base.Peek(ctx, headgate.Call{Key: "headgated"})
		ready = ready && !r.down()
	}
	r.set(ready)
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
