// Http is an HTTP server that limits each client address by two policies. They
// are 10 requests at once and then 5 per second, and 1,000 per day. It answers
// by HTTP/1.1 and HTTP/2.
//
//	go run ./examples/http
//	go run ./examples/http -redis redis://localhost:6379 -fail open
//	for i in {1..15}; do curl -i localhost:8080; done
//	curl -i --http2-prior-knowledge localhost:8080
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/middleware/httplimit"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "where to listen")
	redis := flag.String("redis", "", "URL of a Redis server; empty: in memory")
	fail := flag.String("fail", "closed", "what happens without Redis: open, closed or local")
	proxies := flag.String("proxies", "", "trusted proxies, as 10.0.0.0/8,192.0.2.7; empty: none")
	flag.Parse()
	store, err := open(*redis)
	if err != nil {
		log.Fatal(err)
	}
	h, err := newHandler(store, modes[*fail], clientKey(*proxies))
	if err != nil {
		log.Fatal(err)
	}
	ln, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%v\n", ln.Addr())
	log.Fatal(newServer(h).Serve(ln))
}

// open returns a store. A service begins in memory and changes this line when
// it has a second process.
func open(redis string) (backend.Store, error) {
	if redis == "" {
		return memory.New(nil), nil
	}
	return standalone.Open(redis, nil)
}

// A word that is not listed is the zero mode, which New refuses with its own
// message.
var modes = map[string]headgate.FailureMode{
	"open": headgate.FailOpen, "closed": headgate.FailClosed, "local": headgate.FailLocal,
}

// clientKey is the address of the client, behind proxies if there are any.
func clientKey(proxies string) httplimit.Key {
	if proxies == "" {
		return httplimit.RemoteAddr()
	}
	return httplimit.TrustedProxies(strings.Split(proxies, ",")...)
}

// newHandler limits everything but /health: a load balancer that gets a 429
// there would take the server out of service. It takes its store and key, so
// that a test can give others.
func newHandler(store backend.Store, mode headgate.FailureMode, key httplimit.Key) (http.Handler, error) {
	limiter, err := headgate.New(store, []headgate.Policy{
		{Name: "burst", Algorithm: algo.TokenBucket(algo.PerSecond(5), 10), OnFailure: mode},
		{Name: "daily", Algorithm: algo.FixedWindow(algo.PerDay(1000)), OnFailure: mode},
	}, &headgate.Options{Instances: 2}) // with FailLocal each of two processes has half
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.New(limiter, key, &httplimit.Options{
		Skip: func(r *http.Request) bool { return r.URL.Path == "/health" },
	})
	if err != nil {
		return nil, err
	}
	return limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })), nil
}

// newServer speaks HTTP/2 without TLS too, for clients that begin with it.
func newServer(h http.Handler) *http.Server {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Server{Handler: h, Protocols: &p}
}
