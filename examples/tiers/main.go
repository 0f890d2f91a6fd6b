// Tiers is an HTTP server that limits each tenant by its plan. The plans, and
// what single tenants have instead, stand in limits.yaml, and change while the
// server runs. What a tenant has used stays used.
//
//	cd examples/tiers
//	go run .
//	curl -i -H 'Tenant: acme' localhost:8080
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/middleware/httplimit"
	"github.com/headgate-go/headgate/policyfile"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "where to listen")
	path := flag.String("limits", "limits.yaml", "the plans and tenants")
	redis := flag.String("redis", "", "URL of a Redis server; empty: in memory")
	flag.Parse()
	store, err := open(*redis)
	if err != nil {
		log.Fatal(err)
	}
	limits, err := policyfile.Watch(*path, store, &policyfile.Options{Reloaded: reloaded})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	handler, err := limited(limits)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(*addr, handler))
}

func open(redis string) (backend.Store, error) {
	if redis == "" {
		return memory.New(nil), nil
	}
	return standalone.Open(redis, nil)
}

// reloaded receives each change of the file. A file with a mistake changes
// nothing; the error has its line.
func reloaded(err error) {
	if err != nil {
		log.Printf("the limits stay as they were: %v", err)
		return
	}
	log.Print("new limits")
}

// limited limits each request by the plan that its tenant has now. A limiter that is kept
// would have the limits of the day on which the service began. The key does not contain
// the plan, so a tenant that changes plans keeps what it has used.
func limited(limits *policyfile.Watcher) (http.Handler, error) {
	limit, err := httplimit.NewAll(func(r *http.Request) ([]headgate.Part, error) {
		tenant := r.Header.Get("Tenant") // a service takes it from what it has authenticated
		return limits.Limiters().Parts(tenant, headgate.Key("tenant", tenant))
	}, nil)
	if err != nil {
		return nil, err
	}
	return limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })), nil
}
