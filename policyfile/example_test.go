package policyfile_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
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
		d, err := limits.For(tenant).Allow(context.Background(), headgate.Key("tenant", tenant))
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

func ExampleParse() {
	_, err := policyfile.Parse("limits.yaml", []byte("policies:\n  api: {algorithm: fixed-window, limit: many, period: 1m, on-failure: open}\n"), nil)
	fmt.Println(err)
	// Output:
	// limits.yaml:2:41: policies.api.limit: "many"; want a whole number
}

// The file of a rate limiter service has no failure modes.
func ExampleParse_service() {
	const file = "rate-limiter: {use-algo: sliding-window-algo, window-size: 60, max-requests: 5}"
	f, err := policyfile.Parse("rate-limiter.yaml", []byte(file), &policyfile.Options{OnFailure: headgate.FailOpen})
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range f.For("anybody") {
		fmt.Println(p.Name, p.Algorithm.String())
	}
	// Output:
	// rate-limiter SlidingLog(5 per 1m0s)
}
