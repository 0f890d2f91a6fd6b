package policyfile_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/httplimit"
	"github.com/headgate-go/headgate/policyfile"
)

const file = `
policies:
  requests: {algorithm: sliding-window, limit: 100, period: 1m, on-failure: open}
  tokens: {algorithm: token-bucket, limit: 1000, period: 1s, burst: 5000, on-failure: closed}
plans:
  free: [requests]
  paid:
    requests: {limit: 1000}
    tokens: {}
default: free
tenants:
  acme: paid
  umbrella: {plan: paid, policies: {requests: {limit: 5000}}}
`

func ExampleWatch() {
	dir, err := os.MkdirTemp("", "policyfile")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "limits.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		log.Fatal(err)
	}

	limits, err := policyfile.Watch(path, memory.New(nil), &policyfile.Options{
		Reloaded: func(err error) { // nil: the new limits are in use
			if err != nil {
				log.Print("the limits stay as they were: ", err)
			}
		},
	})
	if err != nil {
		log.Fatal(err) // the file is broken: it has the line and the field
	}
	defer limits.Close()

	for _, tenant := range []string{"acme", "umbrella", "somebody"} {
		d, err := limits.Limiters().For(tenant).Allow(context.Background(), headgate.Key("tenant", tenant))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(tenant, d.Allowed, d.Policy, d.Limit)
	}
	// Output:
	// acme true requests 1000
	// umbrella true requests 5000
	// somebody true requests 100
}

const routed = `
policies:
  requests: {algorithm: fixed-window, limit: 100, period: 30d, on-failure: open}
  search: {algorithm: fixed-window, limit: 2, period: 30d, on-failure: open, per: route, only: /search}
  each: {algorithm: fixed-window, limit: 50, period: 30d, on-failure: open, per: route}
`

// A limit per route of an HTTP server, beside that of the tenant.
func ExampleLimiters_PartsFor() {
	dir, err := os.MkdirTemp("", "policyfile")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "limits.yaml")
	if err := os.WriteFile(path, []byte(routed), 0o600); err != nil {
		log.Fatal(err)
	}
	limits, err := policyfile.Watch(path, memory.New(nil), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/search", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/items/{id}", func(http.ResponseWriter, *http.Request) {})

	limit, err := httplimit.NewAll(func(r *http.Request) ([]headgate.Part, error) {
		tenant := r.Header.Get("Tenant") // a service takes it from what it has authenticated
		_, route := mux.Handler(r)       // the pattern, such as /items/{id}; a client chooses the path freely
		return limits.Limiters().PartsFor(tenant, headgate.Key("tenant", tenant), policyfile.Use{
			Of: map[string]string{"route": route},
		})
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	server := limit(mux)
	for _, path := range []string{"/search", "/search", "/search", "/items/1"} {
		r, w := httptest.NewRequest("GET", path, nil), httptest.NewRecorder()
		r.Header.Set("Tenant", "acme")
		server.ServeHTTP(w, r)
		fmt.Println(path, w.Code)
	}
	// Output:
	// /search 200
	// /search 200
	// /search 429
	// /items/1 200
}

func ExampleParse() {
	_, err := policyfile.Parse("limits.yaml", []byte("policies:\n  api: {algorithm: fixed-window, limit: many, period: 1m, on-failure: open}\n"), nil)
	fmt.Println(err)
	// Output:
	// limits.yaml:2:41: policies.api.limit: "many"; want a whole number, unlimited or blocked
}

// The file of a rate limiter service has no failure modes.
func ExampleParse_service() {
	const file = "rate-limiter: {use-algo: sliding-window-algo, window-size: 60, max-requests: 5}"
	f, err := policyfile.Parse("rate-limiter.yaml", []byte(file), &policyfile.Options{OnFailure: headgate.FailOpen})
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range f.For("anybody").Policies {
		fmt.Println(p.Name, p.Algorithm.String())
	}
	// Output:
	// rate-limiter SlidingLog(5 per 1m0s)
}
