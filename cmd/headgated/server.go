package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/cmd/headgated/internal/bounded"
	"github.com/headgate-go/headgate/cmd/headgated/internal/resp"
	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"github.com/headgate-go/headgate/policyfile"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // what is compressed is read, as by envoyproxy/ratelimit
	"google.golang.org/grpc/keepalive"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// server is the program between its start and its end.
type server struct {
	settings   *settings
	log        *slog.Logger
	store      store
	memory     *memory.Store // nil: the store is another one
	metrics    *metrics
	undecided  undecided
	livePage   livePage
	admittance *admittance
	watcher    *watcher
	xds        *xdsClient // nil without -xds
	service    *rls.Service
	readiness  *readiness
	grpc       *grpc.Server
	https      []*http.Server
	resp       *resp.Server                 // nil without -resp
	policies   *policyfile.Watcher          // nil without -policies
	listeners  map[string]*bounded.Listener // by their flag
	slots      bounded.Slots                // for long requests of HTTP and of the Redis protocol
	short      atomic.Bool                  // memory
	running    sync.WaitGroup
	accepting  sync.WaitGroup // those of them that accept connections
	failed     chan error
	hangup     chan os.Signal
}

// newServer opens the store, reads the limits and listens.
func newServer(s *settings, log *slog.Logger) (_ *server, err error) {
	v := &server{settings: s, log: log, listeners: map[string]*bounded.Listener{}, slots: bounded.NewSlots(longRequests), failed: make(chan error, 8), undecided: undecided{log: log}, hangup: make(chan os.Signal, 1)}
	//mutant:hangup-from-the-start
	signal.Notify(v.hangup, syscall.SIGHUP) // else one while the limits are read would end the process
	if v.store, err = openStore(s); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			v.close()
		}
	}()
	if v.metrics, err = newMetrics(log); err != nil {
		return nil, err
	}
	base, err := newBase(v.store.counts, v.limiterOptions())
	if err != nil {
		return nil, err
	}
	v.openMemory()
	if err := v.openWatcher(base); err != nil {
		return nil, err
	}
	v.readiness = newReadiness(base, v.watcher, s)
	v.openPage(base)
	v.service = rls.New(rls.Options{
		Config: v.watcher.now.Load, Observer: observers{v.metrics, &v.livePage}, Budget: s.budget, Headers: s.headerNames(),
		Metadata: s.metadata, ShadowMode: s.shadow,
	})
	return v, v.listen(base)
}

// openWatcher reads the files of limits, or connects to the service that sends them.
func (v *server) openWatcher(base *headgate.Limiter) (err error) {
	overrides, err := newBase(v.store.counts, v.overrideOptions())
	if err != nil {
		return err
	}
	v.watcher = &watcher{settings: v.settings, metrics: v.metrics, log: v.log, base: base, overrides: overrides, page: &v.livePage, again: make(chan struct{}, 1)}
	v.metrics.notices.known = v.watcher.has
	if v.settings.config != "" {
		if err := v.watcher.load(); err != nil {
			return err
		}
	}
	if v.settings.xds != "" {
		v.xds, err = v.settings.openXDS(v.watcher)
	}
	return err
}

// newBase returns a limiter whose With makes the others on the store.
func newBase(counts backend.Store, opts *headgate.Options) (*headgate.Limiter, error) {
	return headgate.New(counts, []headgate.Policy{{
		Name: probePolicy, Algorithm: algo.FixedWindow(algo.PerSecond(1)), OnFailure: headgate.FailClosed,
	}}, opts)
}

// limiterOptions are those of every limiter.
func (v *server) limiterOptions() *headgate.Options {
	return &headgate.Options{Instances: v.settings.instances, Observer: v.observe, Logger: v.log}
}

// overrideOptions are those of the limiters of the limits that requests bring. The gauge of a
// policy's limit does not have them: clients choose them.
func (v *server) overrideOptions() *headgate.Options {
	opts := v.limiterOptions()
	opts.Observer = func(e headgate.Event) {
		//mutant:gauge-without-overrides
		e.Policies = nil
		v.observe(e)
	}
	return opts
}

func (v *server) observe(e headgate.Event) {
	v.metrics.limiters.Observe(e)
	v.undecided.observe(&e)
}

// ping logs what makes the store unfit, or weakens its promise. The server serves all the
// same: the store may become fit later.
func (v *server) ping(ctx context.Context, base *headgate.Limiter) {
	warnings, err := base.Ping(ctx)
	for _, w := range warnings {
		v.log.Warn("store: " + w)
	}
	if err != nil && ctx.Err() == nil {
		v.log.Error("store: not fit to serve", "error", err)
	}
}

func (s *settings) headerNames() rls.Headers {
	h := rls.Headers{Draft: s.draft}
	if s.headers {
		h.Limit, h.Remaining, h.Reset = s.headerLimit, s.headerRemaining, s.headerReset
	}
	return h
}

// listen opens all addresses before any is served, so that a server with one address
// taken serves none.
func (v *server) listen(base *headgate.Limiter) error {
	s := v.settings
	v.admittance = &admittance{settings: s, log: v.log, metrics: v.metrics, again: make(chan struct{}, 1)}
	if err := v.admittance.load(); err != nil {
		return err
	}
	warning, err := s.bound(openFiles())
	if err != nil {
		return err
	}
	if warning != "" {
		v.log.Warn(warning)
	}
	for flag, address := range map[string]string{"grpc": s.grpc, "http": s.http, "metrics": s.metrics} {
		if address == "" || flag == "grpc" && !s.limited() {
			continue
		}
		if err := v.open(flag, address); err != nil {
			return err
		}
	}
	if err := v.openRESP(base); err != nil {
		return err
	}
	if err := v.metrics.limiters.Borrow(base, v.limiterOfPlans()); err != nil {
		return err
	}
	v.makeServers()
	return nil
}

// makeServers makes the servers of the listeners.
func (v *server) makeServers() {
	options := []grpc.ServerOption{grpc.UnknownServiceHandler(v.noMethod)}
	if secure := v.admittance.tls("h2"); secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	v.grpc = v.newGRPC(options...)
	v.grpc.RegisterService(v.limitService(), v.service)
	healthpb.RegisterHealthServer(v.grpc, v.readiness.health)
	v.https = append(v.https, v.newHTTP(v.handler()), v.newHTTP(v.operators()))
	v.https[0].TLSConfig = v.httpTLS()
	for _, h := range v.https {
		h.ErrorLog = slog.NewLogLogger(v.log.Handler(), slog.LevelDebug)
	}
}

// httpTLS returns the TLS of -http: that of -grpc, unless a flag leaves it out.
func (v *server) httpTLS() *tls.Config {
	//mutant:http-without-tls
	if !v.settings.plainHTTP {
		return v.admittance.tls("h2", "http/1.1")
	}
	if v.settings.http != "" && v.settings.clientCA != "" {
		v.log.Warn("-http has no TLS: its clients need no certificate, and those of -grpc do", "http", v.settings.http)
	}
	return nil
}

// streamWorkers is the number of goroutines that serve requests one after the other. A
// goroutine for each request grows its stack anew, which takes a tenth of the time. While
// all are busy requests get goroutines of their own.
const streamWorkers = 64

// maxHeaders is the size of the headers of a request. gRPC refuses longer ones where nobody sees
// it, and a proxy then lets its client pass. A proxy that traces sends its client's tracestate,
// so there is room for twice what Envoy takes from a client by default.
//
//mutant:headers-of-a-client
const maxHeaders = 128 << 10

// newGRPC bounds what a connection may hold. Buffers are small or shared, since most of
// many connections are idle.
func (v *server) newGRPC(more ...grpc.ServerOption) *grpc.Server {
	s := v.settings
	return grpc.NewServer(append(more, grpc.ForceServerCodecV2(newCodec()),
		grpc.InTapHandle(v.untilRead), grpc.MaxRecvMsgSize(s.maxMessage), grpc.MaxConcurrentStreams(1000), grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(10*time.Second), grpc.ReadBufferSize(8<<10), grpc.NumStreamWorkers(streamWorkers),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second,
			MaxConnectionAge: s.maxConnectionAge, MaxConnectionAgeGrace: s.maxConnectionGrace}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)...)
}

// serve serves until ctx ends, and then drains: the health answers turn first, requests
// go on for the drain delay, and open ones are finished.
func (v *server) serve(ctx context.Context) error {
	defer v.close()
	background, stop := context.WithCancel(context.Background())
	defer stop()
	if v.settings.config != "" {
		v.run("watch", func() error { v.watcher.follow(background); return nil })
	}
	if v.xds != nil {
		v.run("xds", func() error { v.xds.follow(background); return nil })
	}
	v.run("certificates", func() error { v.admittance.follow(background); return nil })
	v.run("ping", func() error { v.ping(background, v.watcher.base); return nil })
	v.run("memory", func() error { v.relieve(background, debug.SetMemoryLimit(-1)); return nil })
	v.run("memory file", func() error { v.followFile(background); return nil })
	v.run("readiness", func() error { v.readiness.follow(background); return nil })
	if l := v.listeners["grpc"]; l != nil {
		v.accept("grpc", func() error { return v.grpc.Serve(l) })
	}
	if v.resp != nil {
		v.accept("resp", func() error { return v.resp.Serve(v.listeners["resp"]) })
	}
	v.serveHTTP("http", v.https[0])
	v.serveHTTP("metrics", v.https[1])
	v.log.Info("serving", "grpc", v.settings.grpc, "http", v.settings.http, "metrics", v.settings.metrics, "resp", v.settings.resp)
	if err := v.wait(ctx); err != nil {
		return err
	}
	v.log.Info("draining", "delay", v.settings.drainDelay)
	v.readiness.drain()
	if v.resp != nil {
		v.resp.Drain()
	}
	time.Sleep(v.settings.drainDelay)
	v.drain()
	stop()
	v.running.Wait()
	return nil
}

// wait returns when ctx ends, or with the error that ends the server. At a hangup the files
// are read at once.
func (v *server) wait(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-v.failed:
			return err
		//mutant:hangup-reads
		case <-v.hangup:
			v.log.Info("the files are read again")
			for _, again := range []chan struct{}{v.watcher.again, v.admittance.again} {
				select {
				case again <- struct{}{}:
				default: // it is about to
				}
			}
		}
	}
}

// run runs f until the server ends. An error before that ends the server.
func (v *server) run(name string, f func() error) {
	v.running.Add(1)
	go func() {
		defer v.running.Done()
		if err := f(); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, net.ErrClosed) {
			v.failed <- fmt.Errorf("%s: %w", name, err)
		}
	}()
}

// accept runs what accepts the connections of a listener, until that is closed.
func (v *server) accept(flag string, f func() error) {
	v.accepting.Add(1)
	v.run(flag, func() error {
		defer v.accepting.Done()
		return f()
	})
}

func (v *server) serveHTTP(flag string, h *http.Server) {
	l := v.listeners[flag]
	if l == nil {
		return
	}
	v.accept(flag, func() error {
		if h.TLSConfig != nil {
			return h.ServeTLS(l, "", "")
		}
		return h.Serve(l)
	})
}

// drain ends the listeners, all at once, and then waits for open requests, at most for the
// drain timeout. A server whose shutdown ended its listener would close what that has just
// accepted. A gRPC stream, as of a health check, may stay open for as long as its client
// likes: Stop ends it.
func (v *server) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), v.settings.drainTimeout)
	defer cancel()
	//mutant:open-stream-ends
	context.AfterFunc(ctx, v.grpc.Stop)
	for _, l := range v.listeners {
		_ = l.Close()
	}
	v.accepting.Wait()
	var open sync.WaitGroup
	open.Go(v.grpc.GracefulStop)
	for _, h := range v.https {
		open.Go(func() { _ = h.Shutdown(ctx) })
	}
	if v.resp != nil {
		open.Go(func() { v.resp.Shutdown(ctx) })
	}
	open.Wait()
}

// close ends what is left. It is called once.
func (v *server) close() {
	signal.Stop(v.hangup)
	if v.grpc != nil {
		v.grpc.Stop()
	}
	for _, h := range v.https {
		_ = h.Close()
	}
	for _, l := range v.listeners {
		_ = l.Close()
	}
	v.livePage.close()
	if v.policies != nil {
		_ = v.policies.Close()
	}
	if v.xds != nil {
		_ = v.xds.conn.Close()
	}
	if v.metrics != nil && v.metrics.limiters != nil {
		_ = v.metrics.limiters.Close()
	}
	if v.store.close == nil {
		return
	}
	//mutant:last-write-failed
	if err := v.store.close(); err != nil {
		v.log.Error("the store was not closed in order", "error", err)
	}
}
