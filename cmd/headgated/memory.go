package main

import (
	"context"
	"math"
	runtimemetrics "runtime/metrics"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// longRequests is how many requests of more than bounded.Small bytes are read at once, gRPC's aside.
const longRequests = 8

const (
	looksAtMemory = 50 * time.Millisecond
	// slowRequest is the time that a request has to arrive while memory is short. Most come with
	// their header.
	slowRequest = 200 * time.Millisecond
	// mostUnread is how many requests of a gRPC connection may be unread then. A header costs a
	// client 30 bytes, and the server some thousand.
	mostUnread = 100
)

var errMemoryShort = status.Error(codes.ResourceExhausted, "memory is short, and many requests of this connection have not arrived")

// relieve works while the process uses more than three quarters of its memory limit. It closes
// the connections of which a part of a request has waited for its rest. A request may have 4 MiB
// and 10 s to arrive: a few hundred clients, or one with as many streams, would take all memory.
// Without a limit it returns at once.
func (v *server) relieve(ctx context.Context, limit int64) {
	if limit == math.MaxInt64 {
		return
	}
	used := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	follow(ctx, looksAtMemory, func() {
		runtimemetrics.Read(used)
		v.short.Store(used[0].Value.Uint64()+used[1].Value.Uint64() > uint64(limit)/4*3)
		//mutant:memory-is-relieved
		if v.short.Load() {
			v.closeUnread()
		}
	}, nil, nil)
}

// closeUnread closes connections whose requests arrive slowly, of all addresses.
func (v *server) closeUnread() {
	closed := 0
	for _, l := range v.listeners {
		closed += l.CloseUnread(slowRequest)
	}
	if closed > 0 && v.metrics.notices.first("memory", "") {
		v.log.Warn("memory is short: connections whose requests arrive slowly are closed", "connections", closed)
	}
}
