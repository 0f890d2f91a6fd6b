package httplimit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
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

// Answers of a service's own form.
func ExampleOptions_answers() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name: "client", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailClosed,
	}}, nil)
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New(limiter, httplimit.RemoteAddr(), &httplimit.Options{
		OnDenied: func(w http.ResponseWriter, _ *http.Request, d httplimit.Denial) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(d.Status) // 429, or 503
			fmt.Fprintf(w, `{"error": "rate limited", "policies": "%s"}`, strings.Join(d.Violated, " "))
		},
	})
	if err != nil {
		panic(err)
	}
	handler := limit(http.NotFoundHandler())
	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Print(w.Code, " ", w.Body)
	}
	// Output:
	// 404 404 page not found
	// 429 {"error": "rate limited", "policies": "client"}
}

// A limit that is decided inside of the handler, which shows what remains.
func ExampleAllow() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name: "searches", Algorithm: algo.SlidingLog(algo.PerHour(3)), OnFailure: headgate.FailClosed,
	}}, nil)
	if err != nil {
		panic(err)
	}
	search := func(w http.ResponseWriter, r *http.Request) {
		part := limiter.Part(headgate.Key("user", r.FormValue("user")))
		part.Call.Each = make([]headgate.State, 1) // one per policy; Allow fills it
		if !httplimit.Allow(w, r, nil, part) {
			return // it is answered
		}
		fmt.Fprint(w, part.Call.Each[0].Remaining, " searches left")
	}

	for range 4 {
		w := httptest.NewRecorder()
		search(w, httptest.NewRequest(http.MethodGet, "/?user=ann", nil))
		if w.Code == http.StatusOK {
			fmt.Println(w.Code, w.Body)
		} else {
			fmt.Println(w.Code, w.Header().Get("Retry-After"))
		}
	}
	// Output:
	// 200 2 searches left
	// 200 1 searches left
	// 200 0 searches left
	// 429 3600
}

// Five failed logins in 15 minutes, by address: a login that succeeds costs nothing.
func ExampleOptions_failures() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name: "failed-logins", Algorithm: algo.SlidingLog(algo.Per(5, 15*time.Minute)), OnFailure: headgate.FailLocal,
	}}, &headgate.Options{Instances: 2}) // processes that share the limit
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
		SettleWait: 5 * time.Second, // for logins of the same address under way in this process
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

// Five failed logins in 15 minutes, by address, where no login waits for another. The
// count is read before the password is checked, and a failure is charged after it.
func ExampleKey_Of() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name: "failed-logins", Algorithm: algo.SlidingLog(algo.Per(5, 15*time.Minute)), OnFailure: headgate.FailClosed,
	}}, nil)
	if err != nil {
		panic(err)
	}
	address := httplimit.RemoteAddr()
	login := func(w http.ResponseWriter, r *http.Request) {
		key, _ := address.Of(r) // Peek refuses an empty key
		part := limiter.Part(key)
		part.Call.Each = make([]headgate.State, 1) // one per policy, for the answer
		d, err := limiter.Peek(r.Context(), part.Call)
		switch {
		case err != nil:
			httplimit.WriteError(w, r, err)
		case !d.Allowed:
			httplimit.WriteFields(w.Header(), nil, d, part)
			httplimit.NewDenial(d, part).Write(w)
		case r.FormValue("password") != "secret":
			if _, err := limiter.Record(r.Context(), part.Call); err != nil {
				log.Print("a failed login was not counted: ", err)
			}
			w.WriteHeader(http.StatusUnauthorized)
		}
	}

	for _, password := range []string{"secret", "guess", "guess", "guess", "guess", "guess", "secret"} {
		w := httptest.NewRecorder()
		login(w, httptest.NewRequest(http.MethodGet, "/?password="+password, nil))
		fmt.Print(w.Code, " ", w.Header().Get("Retry-After"), " ")
	}
	// Output: 200  401  401  401  401  401  429 900
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

// An LLM gateway reserves what a request may use: the bytes of its body, since a token has at
// least one, and the max_tokens in it.
func ExampleRequestError() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{
		{Name: "tokens", Algorithm: algo.CompactLog(algo.PerHour(5000)), OnFailure: headgate.FailClosed},
	}, nil)
	if err != nil {
		panic(err)
	}
	estimate := httplimit.Func(func(r *http.Request) (headgate.Call, error) {
		text, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		r.Body = io.NopCloser(bytes.NewReader(text)) // for the handler
		var body struct {
			MaxTokens int64 `json:"max_tokens"`
		}
		if err != nil || json.Unmarshal(text, &body) != nil || body.MaxTokens < 1 {
			return headgate.Call{}, &httplimit.RequestError{What: "max_tokens", Text: "is missing"} // 400
		}
		tenant := r.Header.Get("Tenant") // authenticated before
		return headgate.Call{Key: headgate.Key("tenant", tenant), Costs: []int64{int64(len(text)) + body.MaxTokens}}, nil
	})
	limit, err := httplimit.New(limiter, estimate, &httplimit.Options{Settle: httplimit.Reported})
	if err != nil {
		panic(err)
	}
	complete := func(*http.Request) int64 { return 350 }
	chat := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		used := complete(r)
		httplimit.ReportPolicy(r.Context(), "tokens", used) // is committed in place of the estimate
	}))

	for _, body := range []string{`{"max_tokens": 2000}`, `{"max_tokens": 4600}`, `{"max_tokens": 9000}`, `{}`} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Tenant", "acme")
		w := httptest.NewRecorder()
		chat.ServeHTTP(w, r)
		fmt.Printf("%d %#q\n", w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 200 `"tokens";r=4650;t=3600`
	// 200 `"tokens";r=4300;t=3600`
	// 403 ``
	// 400 ``
}

// A request counts for its address, and for its API key if it has one.
func ExampleNewAll_addresses() {
	perAddress, err := headgate.New(memory.New(nil), []headgate.Policy{
		{Name: "address", Algorithm: algo.SlidingLog(algo.PerMinute(3)), OnFailure: headgate.FailOpen},
	}, nil)
	perKey, keyErr := perAddress.With(headgate.Policy{Name: "key", Algorithm: algo.SlidingLog(algo.PerMinute(2)), OnFailure: headgate.FailOpen})
	address, apiKey := httplimit.RemoteAddr(), httplimit.Header("X-API-Key")
	limit, limitErr := httplimit.NewAll(func(r *http.Request) ([]headgate.Part, error) {
		ip, err := address.Of(r)
		key, keyErr := apiKey.Of(r)
		parts := []headgate.Part{perAddress.Part(ip)}
		if key != "" { // the request has one
			parts = append(parts, perKey.Part(key))
		}
		return parts, errors.Join(err, keyErr)
	}, nil)
	if err := errors.Join(err, keyErr, limitErr); err != nil {
		log.Fatal(err)
	}

	h := limit(http.NotFoundHandler())
	for _, key := range []string{"a", "a", "a", "b", ""} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if key != "" {
			r.Header.Set("X-API-Key", key)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 404 "address";r=2;t=60, "key";r=1;t=60
	// 404 "address";r=1;t=60, "key";r=0;t=60
	// 429 "address";r=1;t=60, "key";r=0;t=60
	// 404 "address";r=0;t=60, "key";r=1;t=60
	// 429 "address";r=0;t=60
}

// What is left after a streamed response, in a log line and in a trailer. Its header was
// sent before, with the estimate.
func ExampleOptions_settled() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{
		{Name: "tokens", Algorithm: algo.SlidingLog(algo.PerHour(5000)), OnFailure: headgate.FailOpen},
	}, nil)
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New(limiter, httplimit.RemoteAddr(), &httplimit.Options{
		Cost:   func(*http.Request) []int64 { return []int64{2000} },
		Settle: httplimit.Reported,
		Settled: func(o *httplimit.Outcome) {
			for i, s := range o.States { // none if the store has not answered
				fmt.Println(o.Request.URL.Path, o.Policies[i], s.Used, "used,", s.Remaining, "left")
			}
			if o.States != nil {
				o.Header.Set(http.TrailerPrefix+"RateLimit", o.Header.Get("RateLimit"))
			}
		},
	})
	if err != nil {
		panic(err)
	}
	stream := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "a reply")
		w.(http.Flusher).Flush()
		httplimit.ReportPolicy(r.Context(), "tokens", 350)
	}))

	w := httptest.NewRecorder()
	stream.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/stream", nil))
	fmt.Println(w.Result().Header.Get("RateLimit"))
	fmt.Println(w.Result().Trailer.Get("RateLimit"))
	// Output:
	// /stream tokens 350 used, 4650 left
	// "tokens";r=3000;t=3600
	// "tokens";r=4650;t=3600
}

// A gateway limits the requests and tokens of a user, the tokens of the organisation, and
// the calls of a model that run at once. A reply is streamed, and settled by the tokens
// that were made.
func ExampleNewAll() {
	users, err := headgate.New(memory.New(nil), []headgate.Policy{
		{Name: "requests", Algorithm: algo.SlidingLog(algo.PerMinute(60)), OnFailure: headgate.FailClosed},
		{Name: "tokens", Algorithm: algo.CompactLog(algo.PerHour(10_000)), OnFailure: headgate.FailClosed},
	}, nil)
	orgs, orgErr := users.With(headgate.Policy{Name: "tokens", Algorithm: algo.CompactLog(algo.PerHour(100_000)), OnFailure: headgate.FailClosed})
	models, modelErr := users.With(headgate.Policy{Name: "running", Algorithm: algo.InFlight(20), OnFailure: headgate.FailClosed})
	limit, limitErr := httplimit.NewAll(func(r *http.Request) ([]headgate.Part, error) {
		return []headgate.Part{ // by headers that were authenticated, with the tokens of the prompt and the longest reply
			users.Part(headgate.Key("user", r.Header.Get("User")), 1, 2000),
			orgs.Part(headgate.Key("org", r.Header.Get("Org")), 2000),
			models.Part(headgate.Key("model", r.Header.Get("Model"))),
		}, nil
	}, &httplimit.Options{Settle: httplimit.Reported, Units: map[string]string{"tokens": "tokens"}})
	if err := errors.Join(err, orgErr, modelErr, limitErr); err != nil {
		log.Fatal(err)
	}
	complete := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		used := int64(50)                                                      // of the prompt
		defer func() { httplimit.ReportPolicy(r.Context(), "tokens", used) }() // also after a panic
		for _, token := range []string{"a ", "rate ", "limit\n"} {
			used++
			_, _ = io.WriteString(w, token)
			w.(http.Flusher).Flush()
		}
	}))

	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header = http.Header{"User": {"ann"}, "Org": {"acme"}, "Model": {"large"}}
		w := httptest.NewRecorder()
		complete.ServeHTTP(w, r)
		fmt.Print(w.Body)
		fmt.Println(w.Header().Get("RateLimit"))
	}
	// Output:
	// a rate limit
	// "requests";r=59;t=60, "tokens";r=8000;t=3600, "running";r=19
	// a rate limit
	// "requests";r=58;t=60, "tokens";r=7947;t=3600, "running";r=19
}
