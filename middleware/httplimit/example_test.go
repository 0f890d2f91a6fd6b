package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/httplimit"
)

// A handler that serves each client address 100 requests a minute.
func Example() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name: "client", Algorithm: algo.FixedWindow(algo.PerMinute(100)), OnFailure: headgate.FailOpen,
	}}, nil)
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New(limiter, httplimit.RemoteAddr(), nil)
	if err != nil {
		panic(err)
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	handler := limit(hello) // for http.ListenAndServe

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"))
	// Output: 200 "client";q=100;w=60
}

// A client that waits for the server's rate limit instead of running into it.
func ExampleTransport() {
	client := &http.Client{Transport: &httplimit.Transport{}}

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
