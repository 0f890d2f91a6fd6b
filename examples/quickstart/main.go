// Quickstart is an HTTP server that limits each client address: 10 requests
// at once, then 5 a second.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -redis localhost:6379
//	for i in {1..15}; do curl -i localhost:8080; done
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "where to listen")
	redis := flag.String("redis", "", "host:port or URL of a Redis server; empty: in memory")
	flag.Parse()
	store, err := open(*redis)
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := headgate.New(store, []headgate.Policy{{
		Name:      "client",
		Algorithm: algo.TokenBucket(algo.PerSecond(5), 10),
		OnFailure: headgate.FailClosed,
	}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	log.Fatal(http.ListenAndServe(*addr, limited(limiter, hello)))
}

// open returns the store: the one thing that differs between one process and
// a fleet.
func open(redis string) (backend.Store, error) {
	if redis == "" {
		return memory.New(nil), nil
	}
	if !strings.Contains(redis, "://") {
		redis = "redis://" + redis
	}
	return standalone.Open(redis, nil)
}

// limited lets next serve what the limiter admits. The key is the address
// that the connection comes from; behind a proxy that would be the proxy's.
func limited(l *headgate.Limiter, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			host = r.RemoteAddr
		}
		d, err := l.Allow(r.Context(), headgate.Key("client", host))
		if err != nil { // the caller left, or the call was wrong
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
		if d.Err != nil {
			log.Printf("%v: %v", d.Source, d.Err)
		}
		if !d.Allowed {
			w.Header().Set("Retry-After", seconds(d.RetryAfter))
			http.Error(w, "try again later", status(d))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// status tells a client that asked too much from one that nobody could count.
func status(d headgate.Decision) int {
	if d.Source == headgate.FromFailClosed {
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

// seconds rounds up: who comes back sooner would be denied again.
func seconds(d time.Duration) string {
	return fmt.Sprint(max(1, int64((d+time.Second-1)/time.Second)))
}
