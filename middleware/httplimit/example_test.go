package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

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

// Five failed logins in 15 minutes, by address: a login that succeeds costs nothing.
func ExampleOptions_failures() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name: "failed-logins", Algorithm: algo.SlidingLog(algo.Per(5, 15*time.Minute)), OnFailure: headgate.FailOpen,
	}}, nil)
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New(limiter, httplimit.RemoteAddr(), &httplimit.Options{
		Settle: func(o *httplimit.Outcome) []int64 {
			if o.Status == http.StatusUnauthorized {
				return nil // the charge stands
			}
			return []int64{0} // it is given back
		},
		SettleWait: 5 * time.Second, // for logins of the same address that are under way
	})
	if err != nil {
		panic(err)
	}
	login := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))

	try := func(password string) int {
		w := httptest.NewRecorder()
		login.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?password="+password, nil))
		return w.Code
	}
	for range 1000 {
		try("secret")
	}
	for range 6 {
		fmt.Print(try("guess"), " ")
	}
	// Output: 401 401 401 401 401 429
}

// At most 20 requests of a tenant at once, and 5,000 tokens per hour. What a request
// has used is known when it ends: until then it is charged an estimate.
func ExampleReport() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{
		{Name: "running", Algorithm: algo.InFlight(20), OnFailure: headgate.FailOpen},
		{Name: "tokens", Algorithm: algo.SlidingLog(algo.PerHour(5000)), OnFailure: headgate.FailOpen},
	}, nil)
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New(limiter, httplimit.Header("Tenant"), &httplimit.Options{
		Cost:   func(*http.Request) []int64 { return []int64{1, 2000} },
		Units:  map[string]string{"tokens": "tokens"},
		Settle: httplimit.Reported,
	})
	if err != nil {
		panic(err)
	}
	complete := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK) // the fields are sent now, with the estimate
		httplimit.ReportPolicy(r.Context(), "tokens", 350)
	}))

	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Tenant", "acme")
		w := httptest.NewRecorder()
		complete.ServeHTTP(w, r)
		fmt.Println(w.Header().Get("RateLimit-Policy"))
		fmt.Println(w.Header().Get("RateLimit"))
	}
	// Output:
	// "running";q=20;qu="concurrent-requests", "tokens";q=5000;w=3600;qu="tokens"
	// "running";r=19, "tokens";r=3000;t=3600
	// "running";q=20;qu="concurrent-requests", "tokens";q=5000;w=3600;qu="tokens"
	// "running";r=19, "tokens";r=2650;t=3600
}
