package httpclient_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/httpclient"
)

// A client that waits for the server's rate limit instead of running into it.
func ExampleTransport() {
	client := &http.Client{Transport: &httpclient.Transport{}}

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", `"default";r=50;t=30`)
	}))
	defer server.Close()
	resp, err := client.Get(server.URL)
	if err != nil {
		panic(err)
	}
	fmt.Println(resp.StatusCode)
	_ = resp.Body.Close()
	// Output: 200
}

// Processes that share what a server grants them.
func ExampleTransport_limiter() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name: "partner", Algorithm: algo.TokenBucket(algo.PerSecond(45), 1), OnFailure: headgate.FailClosed,
	}}, nil)
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: &httpclient.Transport{
		Limiter: limiter, // a little below the 50 per second that the partner grants
		Key:     "partner",
	}}

	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	resp, err := client.Get(server.URL)
	if err != nil {
		panic(err)
	}
	fmt.Println(resp.StatusCode)
	_ = resp.Body.Close()
	// Output: 200
}
