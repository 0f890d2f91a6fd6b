// Headgated is a rate limiter for services in any language: Envoy's rate limit service,
// version 3, with the configuration files of envoyproxy/ratelimit.
//
//	headgated -config limits.yaml                                # counts in memory
//	headgated -config limits.yaml -redis redis://localhost:6379
//	headgated -config limits/ -cluster node1:7000,node2:7000
//	headgated -config limits.yaml -postgres postgres://user@host/database
//	headgated -check -config limits.yaml                         # whether the server can start with the file
//
// Each flag may be set by the environment instead: -grpc by HEADGATED_GRPC, -log-level by
// HEADGATED_LOG_LEVEL. If the program's name is ratelimit it reads the environment of
// envoyproxy/ratelimit, and listens as that service does. docs/server.md has the rest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	_ "time/tzdata" // a policy file may name a zone, and the image has no data

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/redis/go-redis/v9/logging"
)

func main() {
	logging.Disable() // the server logs each change of a circuit
	ballast := tuneCollector(os.Getenv)
	//mutant:memory-of-the-group
	_, _ = memlimit.Set(memlimit.WithRatio(ofMemory)) // without a cgroup, or with GOMEMLIMIT, it sets none
	//mutant:log-without-reader
	signal.Ignore(syscall.SIGPIPE) // else a line of the log would end the process when nothing reads the log any more
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status := run(ctx, os.Args, os.Environ(), os.Stdout, os.Stderr)
	//mutant:ballast-stays
	runtime.KeepAlive(ballast)
	os.Exit(status)
}

// ofMemory is the part of the cgroup's memory that the heap may take before it is collected
// more often than tuneCollector has it.
const ofMemory = 0.9

// ballastSize is four times what is live in a server that has little to do.
const ballastSize = 16 << 20

// tuneCollector returns what has to stay reachable. The live heap is small and each request
// leaves garbage: by default the collector takes a fifth of the processor's time. The ballast
// counts as live, so collections are as rare as with five times the live heap. Where strangers
// make that four times as large, the process does not become so. It is never written, so it takes
// no memory.
func tuneCollector(getenv func(string) string) []byte {
	//mutant:collector-by-gogc
	if getenv("GOGC") != "" {
		return nil
	}
	//mutant:ballast-is-live
	return make([]byte, ballastSize)
}

// version is that of the module, or the commit that it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}

// run runs the program until ctx ends, and returns its exit status: 2 for settings or
// files that are wrong.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	s, warnings, err := settingsOf(args, environ, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "headgated: %v\n", err)
		return 2
	}
	if s.version {
		fmt.Fprintln(stdout, "headgated", version())
		return 0
	}
	if s.probe != "" {
		return probe(s.probe, stderr)
	}
	log := s.logger(stderr)
	for _, w := range warnings {
		log.Warn(w)
	}
	var srv *server
	if s.checks {
		err = checkFiles(s, stdout, log)
	} else {
		srv, err = newServer(s, log)
	}
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "headgated: %v\n", err)
		return 2
	case s.checks:
		return 0
	}
	if err := srv.serve(ctx); err != nil {
		log.Error("stopped", "error", err)
		return 1
	}
	return 0
}

// replaces reports whether the program was started under the name of the service that it
// replaces.
func replaces(arg0 string) bool { return filepath.Base(arg0) == "ratelimit" }
