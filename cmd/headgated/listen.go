package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/headgate-go/headgate/cmd/headgated/internal/bounded"
	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// open opens the address of a flag, "host:port" or "unix:/path".
func (v *server) open(flag, address string) error {
	network, path := "tcp", address
	if p, ok := strings.CutPrefix(address, "unix:"); ok {
		network, path = "unix", p
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
			_ = os.Remove(path) // of a process that was killed
		}
	}
	var config net.ListenConfig
	if network == "tcp" && v.settings.reusePort {
		config.Control = reusePort
	}
	l, err := config.Listen(context.Background(), network, path)
	if err != nil {
		return fmt.Errorf("-%s: %w", flag, err)
	}
	v.listeners[flag] = bounded.New(l, v.settings.maxConnections, v.notAccepted(flag))
	v.metrics.listener(flag, v.listeners[flag].Stats)
	return nil
}

// notAccepted logs that accepts of a listener fail: one line per minute, since strangers who
// take all files make 200 a second fail.
func (v *server) notAccepted(flag string) func(error) {
	var lines notices
	return func(err error) {
		//mutant:failed-accepts-once
		if lines.first("accept", "") {
			v.log.Warn("a connection was not accepted", "listener", flag, "error", err)
		}
	}
}

// The files that connections of strangers must leave to the process.
const (
	ownFiles   = 64 // listeners, limits, certificates, standard streams
	clusterOf  = 16 // nodes of a cluster, for which files are kept
	poolOfNode = 10 // connections to a node per processor, as the client's default is
)

// bound lowers the bound of connections to what the files of the process allow, less those of
// the store. One that a flag has set is an error.
func (s *settings) bound(files uint64) (warning string, err error) {
	kept := ownFiles
	switch {
	case s.cluster != "":
		kept += clusterOf * poolOfNode * runtime.GOMAXPROCS(0)
	case s.redis != "":
		kept += 2 * poolOfNode * runtime.GOMAXPROCS(0) // Sentinels too
	}
	listeners := 0
	for _, address := range []string{s.http, s.metrics, s.resp} {
		if address != "" {
			listeners++
		}
	}
	if s.grpc != "" && s.limited() {
		listeners++
	}
	most := max((int(min(files, 1<<30))-kept)/max(listeners, 1), 1)
	//mutant:bound-within-files
	if most >= s.maxConnections {
		return "", nil
	}
	why := fmt.Sprintf("-max-connections %d: the process may open %d files, which are %d for each of %d addresses beside those of the store",
		s.maxConnections, files, most, listeners)
	//mutant:bound-of-the-flag
	if s.maxConnectionsSet {
		return "", fmt.Errorf("%s; raise the limit of files, or lower -max-connections", why)
	}
	s.maxConnections = most
	return why + "; the bound is lowered", nil
}

// readWithin is the time that a request of gRPC has to arrive, beside the budget. Its stream
// would stay open, and hold what came, for as long as its client likes.
const readWithin = 10 * time.Second

// untilRead ends a request that does not arrive. The header of one that is to be decided marks
// its connection: the rest is on its way. A health check that watches is no request.
func (v *server) untilRead(ctx context.Context, info *tap.Info) (context.Context, error) {
	var c *bounded.Conn
	if p, ok := peer.FromContext(ctx); ok {
		c = bounded.Of(p.Addr)
	}
	switch {
	case ctx.Err() != nil: // its deadline has passed: no handler will see it
		return ctx, nil
	case info.FullMethodName == healthpb.Health_Watch_FullMethodName:
		return ctx, watches(ctx, c)
	}
	//mutant:few-unread-while-short
	if v.short.Load() && c.Unread() >= mostUnread {
		v.metrics.Request(rls.Undecided)
		return ctx, errMemoryShort
	}
	//mutant:header-is-a-request
	if info.FullMethodName == rlspb.RateLimitService_ShouldRateLimit_FullMethodName {
		c.Begin()
		c.End()
	} else {
		context.AfterFunc(ctx, c.Arrived)
	}
	c.Expect()
	end := time.Now().Add(readWithin + v.settings.budget)
	//mutant:unread-request-ends
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(end) {
		return ctx, nil
	}
	ctx, cancel := context.WithDeadline(ctx, end)
	_ = cancel // the stream's context, which is the parent, ends with it
	return ctx, nil
}

// mostWatches is how many health checks of a connection may watch. They stay open for as long as
// their client likes.
const mostWatches = 4

// watches counts a health check that watches, until its stream ends.
func watches(ctx context.Context, c *bounded.Conn) error {
	//mutant:few-watches
	if !c.Hold(mostWatches) {
		return status.Errorf(codes.ResourceExhausted, "a connection may watch the health %d times", mostWatches)
	}
	context.AfterFunc(ctx, c.Release)
	return nil
}

// connection is the key of a request's connection.
type connection struct{}

// newHTTP returns a server with deadlines for all that a client sends or reads.
func (v *server) newHTTP(h http.Handler) *http.Server {
	return &http.Server{
		Handler: v.active(h), MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connection{}, bounded.Of(c.RemoteAddr()))
		},
	}
}

// active marks the connections of requests. A body that does not come is none: the
// connection is idle since its header came. While the server drains, each answer is the last
// of its connection.
func (v *server) active(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connOf(r).Begin()
		connOf(r).End()
		//mutant:last-answer-says-close
		if v.readiness.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// connOf returns a request's connection, or nil.
func connOf(r *http.Request) *bounded.Conn {
	c, _ := r.Context().Value(connection{}).(*bounded.Conn)
	return c
}
