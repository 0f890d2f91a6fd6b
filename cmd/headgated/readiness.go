package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/health"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// readiness follows the store and the failure mode. Where requests do not pass without a
// store, the server is not ready until the store has answered once, and while every circuit
// is open. Then it isn't ready either while the store takes no writes, as a replica does not.
//
// Healthy is what envoyproxy/ratelimit answers: the server is, unless it drains. It is not
// before the first limits, nor while the store is away under -health-store. So a probe
// that restarts what is not healthy does not restart every server while the store is away.
type readiness struct {
	base     *headgate.Limiter
	watcher  *watcher
	health   *health.Server // follows healthy
	settings *settings
	limits   bool        // there are files of limits
	reached  atomic.Bool // the store has answered
	readOnly bool        // the store's last answer to a probe: it is a replica; the follower's
	probes   atomic.Int64
	looks    atomic.Int64
	draining atomic.Bool
	ready    atomic.Bool
	healthy  atomic.Bool
}

// serviceName is the name under which envoyproxy/ratelimit reports its health.
const serviceName = "ratelimit"

// probePolicy is the name of the policy that probes peek at.
const probePolicy = "ready"

// firstProbe is how long the start waits for the store.
const firstProbe = 100 * time.Millisecond

func newReadiness(base *headgate.Limiter, w *watcher, s *settings) *readiness {
	r := &readiness{base: base, watcher: w, health: health.NewServer(), settings: s, limits: s.limited()}
	ctx, cancel := context.WithTimeout(context.Background(), firstProbe)
	defer cancel()
	r.update(ctx)
	return r
}

// follow updates the answers until ctx ends.
func (r *readiness) follow(ctx context.Context) {
	follow(ctx, 200*time.Millisecond, func() { r.update(ctx) }, nil, nil)
}

// update looks at the circuits. Until the store has answered, and while all circuits are
// open, it sends a request, so that a server without requests finds the store.
func (r *readiness) update(ctx context.Context) {
	if r.draining.Load() {
		return
	}
	config := r.watcher.now.Load()
	loaded := !r.limits || config != nil
	stored := true
	if !r.passes() || r.settings.healthStore {
		//mutant:probed-by-takes
		if n := r.looks.Add(1); !r.reached.Load() || r.down() || n%probeEvery == 0 && r.remote() {
			r.probe(ctx)
		}
		//mutant:ready-after-an-answer
		stored = r.reached.Load() && !r.down()
	}
	healthy := loaded || r.settings.forceStart
	if r.settings.healthLimits {
		healthy = config != nil && !config.Empty()
	}
	r.set(loaded && (stored && !r.readOnly || r.passes()), healthy && (stored || !r.settings.healthStore))
}

// probeEvery is how many looks there are for each probe of a store that serves: one per second.
const probeEvery = 5

// remote reports whether the store is another process.
func (r *readiness) remote() bool { return r.base.Stats().Circuits != nil }

// probe takes a unit: a replica answers a request that only looks. Each has a key of its own,
// since a node of a cluster may be dead and the others serve.
func (r *readiness) probe(ctx context.Context) {
	d, err := r.base.Allow(ctx, fmt.Sprint("headgated:", r.probes.Add(1)%64))
	if err == nil && d.Source == headgate.FromStore {
		r.reached.Store(true)
		r.readOnly = false
	} else if redis.HasErrorPrefix(d.Err, "READONLY") {
		r.readOnly = true
	}
}

// passes reports whether requests pass while no store decides: by the flag, or since each
// limit in use names a mode that lets them.
func (r *readiness) passes() bool {
	if mode := r.settings.onFailure; mode == "open" || mode == "local" {
		return true
	}
	config := r.watcher.now.Load()
	return config != nil && config.Passes()
}

func (r *readiness) set(ready, healthy bool) {
	r.ready.Store(ready)
	r.healthy.Store(healthy)
	if r.draining.Load() { // meanwhile
		r.ready.Store(false)
		r.healthy.Store(false)
	}
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if healthy {
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
	r.healthy.Store(false)
	r.health.Shutdown()
}
