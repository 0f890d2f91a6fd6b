package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/middleware/httplimit"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/redis/go-redis/v9"
)

// The snippets of the README and of docs/guide.md are parts of these examples, which
// docs_test.go checks.

var ctx = context.Background()

// frozen is a store whose clock stands still, for outputs that a slow machine
// must not change.
func frozen() *memory.Store {
	return memory.New(&memory.Options{Now: func() time.Time { return time.Unix(1_745_000_000, 0) }})
}

func Example() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name:      "api",
		Algorithm: algo.SlidingLog(algo.PerMinute(2)),
		OnFailure: headgate.FailOpen,
	}}, nil)
	if err != nil {
		log.Fatal(err)
	}

	for range 3 {
		d, err := limiter.Allow(ctx, "user:42")
		if err != nil {
			log.Fatal(err) // an argument was out of range, or ctx had ended
		}
		fmt.Println(d.Allowed, "used", d.Used, "of", d.Limit)
	}
	// Output:
	// true used 1 of 2
	// true used 2 of 2
	// false used 2 of 2
}

// It has no Output, so it is only compiled: it would need a server at that address.
func Example_threeLines() {
	policies := []headgate.Policy{perMinute}

	store, _ := standalone.Open("redis://localhost:6379", nil)
	limiter, _ := headgate.New(store, policies, nil)
	d, _ := limiter.Allow(ctx, "user:42") // d.Allowed, d.Remaining, d.RetryAfter

	fmt.Println(d.Allowed)
}

// It has no Output, so it is only compiled: it would serve for ever.
func Example_http() {
	store, err := standalone.Open("redis://localhost:6379", nil)
	if err != nil {
		log.Fatal(err) // the URL or an option is wrong
	}
	limiter, err := headgate.New(store, []headgate.Policy{{
		Name:      "client",
		Algorithm: algo.TokenBucket(algo.PerSecond(5), 10), // 5 per second, 10 at once
		OnFailure: headgate.FailOpen,                       // while Redis is down, calls pass
	}}, &headgate.Options{Logger: slog.Default()}) // logs when Redis is lost, and when it is back
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(limiter, httplimit.RemoteAddr(), nil)
	if err != nil {
		log.Fatal(err)
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	log.Fatal(http.ListenAndServe("localhost:8080", limit(hello)))
}

func Example_redis() {
	policies := []headgate.Policy{{
		Name:      "api",
		Algorithm: algo.TokenBucket(algo.PerSecond(20), 100),
		OnFailure: headgate.FailOpen,
	}}

	store, err := standalone.Open("redis://localhost:6379/0", &standalone.Options{Budget: 50 * time.Millisecond})
	if err != nil {
		log.Fatal(err) // the URL or an option is wrong
	}
	defer store.Close()
	limiter, err := headgate.New(store, policies, nil) // no I/O: Redis may be down

	fmt.Println(err, len(limiter.Policies()))
	// Output: <nil> 1
}

func Example_client() {
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    "mymaster",
		SentinelAddrs: []string{"localhost:26379"},
	})
	store := standalone.New(client, &standalone.Options{Name: "mymaster"}) // Close leaves your client open

	fmt.Println(store.Check([]headgate.Policy{perMinute}))
	// Output: <nil>
}

// It has no Output, so it is only compiled: it would need a cluster.
func Example_cluster() {
	endpoints := []string{"127.0.0.1:7000", "127.0.0.1:7001", "127.0.0.1:7002"}

	store, err := cluster.Open(endpoints, nil)
	if err != nil {
		log.Fatal(err) // no endpoint, or an option is wrong
	}
	defer store.Close()
	limiter, err := headgate.New(store, []headgate.Policy{perMinute}, nil)
	if err != nil {
		log.Fatal(err)
	}

	warnings, err := limiter.Ping(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, w := range warnings { // as: cluster-require-full-coverage is yes
		log.Print(w)
	}
	for node, state := range limiter.Stats().Circuits {
		fmt.Println(node, state)
	}
}

// Nobody listens on port 1, so that each process decides by its share.
func Example_failLocal() {
	store, err := standalone.Open("redis://127.0.0.1:1", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	limiter, err := headgate.New(store, []headgate.Policy{{
		Name:      "api",
		Algorithm: algo.FixedWindow(algo.PerDay(100)),
		OnFailure: headgate.FailLocal,
	}}, &headgate.Options{Instances: 4}) // processes that share the limit
	if err != nil {
		log.Fatal(err)
	}

	d, _ := limiter.Allow(ctx, "user:42")
	fmt.Println(d.Allowed, d.Source, "of", d.Limit)
	// Output: true fail_local of 25
}

// metrics counts what its observer receives.
type metrics struct {
	decisions [headgate.FromDenyCache + 1]atomic.Int64
	opened    atomic.Int64
}

func (m *metrics) observe(e headgate.Event) {
	switch {
	case e.Type == headgate.EventDecision && e.Err == nil && (e.Op == backend.Take || e.Op == backend.Reserve || e.Op == backend.AtMost):
		m.decisions[e.Decision.Source].Add(1) // no peek, no settlement, no reset
	case e.Type == headgate.EventCircuit && e.Circuit.To == "open":
		m.opened.Add(1)
	}
}

func Example_hotKey() {
	store := frozen()

	limiter, err := headgate.New(store, []headgate.Policy{{
		Name:      "tenant",
		Algorithm: algo.SlidingWindow(algo.PerMinute(1_000_000)),
		OnFailure: headgate.FailOpen,
	}}, &headgate.Options{Shards: 16})
	if err != nil {
		log.Fatal(err)
	}

	for range 1000 {
		_, _ = limiter.Allow(ctx, "tenant:42") // each by one of sixteen sub-keys
	}
	d, _ := limiter.Peek(ctx, headgate.Call{Key: "tenant:42"})
	fmt.Println(d.Allowed, "used", d.Used, "of", d.Limit)
	_, err = limiter.AllowN(ctx, "tenant:42", 70_000)
	fmt.Println(err)
	// Output:
	// true used 1000 of 1000000
	// headgate: cost can never be admitted: cost 70000: want at most 62500, the smallest of the 16 shares of policy "tenant"
}

func Example_denyCacheTTL() {
	store, err := standalone.Open("redis://localhost:6379", nil)
	if err != nil {
		log.Fatal(err)
	}
	policies := []headgate.Policy{perMinute}

	limiter, err := headgate.New(store, policies, &headgate.Options{
		DenyCacheTTL: 200 * time.Millisecond, // how long a denial is remembered; 0 means 1 s, and a negative value turns this off
	})

	fmt.Println(err, limiter.Stats().DenyCache, "answered from memory")
	// Output: <nil> 0 answered from memory
}

func Example_observer() {
	store, seen := memory.New(nil), new(metrics)

	limiter, err := headgate.New(store, []headgate.Policy{perMinute}, &headgate.Options{
		Observer: seen.observe,   // an event per call, per batch and per change of a circuit
		Logger:   slog.Default(), // a line per change of a circuit
	})
	if err != nil {
		log.Fatal(err)
	}

	for range 3 {
		_, _ = limiter.Allow(ctx, "user:42")
	}
	_, _ = limiter.Peek(ctx, headgate.Call{Key: "user:42"})
	_ = limiter.Reset(ctx, "user:42")
	fmt.Println(seen.decisions[headgate.FromStore].Load(), "by the store")
	// Output: 3 by the store
}

// Several policies are decided together: where one denies, none is charged.
func ExampleLimiter_Do() {
	store := frozen()
	limiter, err := headgate.New(store, []headgate.Policy{
		{Name: "requests", Algorithm: algo.SlidingWindow(algo.PerSecond(10)), OnFailure: headgate.FailOpen},
		{Name: "tokens", Algorithm: algo.SlidingLog(algo.PerHour(5000)), OnFailure: headgate.FailClosed},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}

	each := make([]headgate.State, 2) // one per policy; Do fills it

	costs, err := limiter.Costs(nil, map[string]int64{"tokens": 3000}) // and one request
	if err != nil {
		log.Fatal(err) // a name is not in the list
	}
	for range 2 {
		d, err := limiter.Do(ctx, headgate.Call{Key: headgate.Key("user", "42"), Costs: costs, Each: each})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, "because of", d.Policy)
		fmt.Println("  requests", each[0].Remaining, "left, tokens", each[1].Remaining, "left")
	}
	// Output:
	// true because of requests
	//   requests 9 left, tokens 2000 left
	// false because of tokens
	//   requests 9 left, tokens 2000 left
}

// A test sets the clock; nothing sleeps.
func Example_testing() {
	now := time.Unix(1_745_000_000, 0)
	store := memory.New(&memory.Options{Now: func() time.Time { return now }})
	limiter, err := headgate.New(store, []headgate.Policy{{
		Name:      "login",
		Algorithm: algo.SlidingLog(algo.PerMinute(5)),
		OnFailure: headgate.FailClosed,
	}}, nil)
	if err != nil {
		log.Fatal(err)
	}

	_, _ = limiter.AllowN(ctx, "user:42", 5)
	now = now.Add(20 * time.Second)
	d, _ := limiter.Allow(ctx, "user:42")
	fmt.Println(d.Allowed, d.RetryAfter)

	now = now.Add(d.RetryAfter)
	d, _ = limiter.Allow(ctx, "user:42")
	fmt.Println(d.Allowed)
	// Output:
	// false 40s
	// true
}

// Nobody listens on port 1, so that the policies' failure modes decide.
func ExampleLimiter_OnFailure() {
	store, err := standalone.Open("redis://127.0.0.1:1", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter, err := headgate.New(store, []headgate.Policy{{
		Name:      "quota",
		Algorithm: algo.FixedWindow(algo.PerDay(10_000)),
		OnFailure: headgate.FailOpen,
	}}, nil)
	if err != nil {
		log.Fatal(err)
	}

	strict, err := limiter.OnFailure(headgate.FailClosed)
	if err != nil {
		log.Fatal(err)
	}
	page, _ := limiter.AllowN(ctx, "user:42", 1)    // cheap: let it pass
	search, _ := strict.AllowN(ctx, "user:42", 100) // expensive: deny it
	fmt.Println(page.Allowed, page.Source, errors.Is(page.Err, headgate.ErrUnavailable))
	fmt.Println(search.Allowed, search.Source, search.RetryAfter)
	// Output:
	// true fail_open true
	// false fail_closed 1s
}

func ExampleLimiter_With() {
	free, err := headgate.New(frozen(), []headgate.Policy{{
		Name: "plan", Algorithm: algo.SlidingWindow(algo.PerMinute(60)), OnFailure: headgate.FailOpen,
	}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	paid, err := free.With(headgate.Policy{
		Name: "plan", Algorithm: algo.SlidingWindow(algo.PerMinute(600)), OnFailure: headgate.FailOpen,
	})
	if err != nil {
		log.Fatal(err)
	}

	_, _ = free.AllowN(ctx, "tenant:7", 60)
	before, _ := free.Allow(ctx, "tenant:7")
	after, _ := paid.Allow(ctx, "tenant:7") // has paid: the same count, another limit
	fmt.Println(before.Allowed, after.Allowed, after.Used)
	// Output: false true 61
}

func ExampleLimiter_Peek() {
	limiter, err := headgate.New(frozen(), []headgate.Policy{perMinute}, nil)
	if err != nil {
		log.Fatal(err)
	}

	_, _ = limiter.AllowN(ctx, "user:42", 30)
	d, _ := limiter.Peek(ctx, headgate.Call{Key: "user:42"})
	fmt.Println(d.Remaining, "left")
	// Output: 70 left
}

func ExampleLimiter_AllowN_never() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{perMinute}, nil)
	if err != nil {
		log.Fatal(err)
	}

	_, err = limiter.AllowN(ctx, "user:42", 101)
	fmt.Println(errors.Is(err, headgate.ErrNeverAdmissible))
	fmt.Println(err)
	// Output:
	// true
	// headgate: cost can never be admitted: cost 101: want 0 to 100 for policy "api"
}

func ExampleKey() {
	fmt.Println(headgate.Key("user", "42", "search"))
	fmt.Println(headgate.Key("user", "42:search")) // another list, another key
	// Output:
	// user:42:search
	// user:42%3Asearch
}

// A tighter limit is tried on live traffic before it denies anything.
func ExamplePolicy_shadow() {
	store := frozen()

	limiter, err := headgate.New(store, []headgate.Policy{
		{Name: "now", Algorithm: algo.FixedWindow(algo.PerHour(3)), OnFailure: headgate.FailOpen},
		{Name: "planned", Algorithm: algo.FixedWindow(algo.PerHour(1)), OnFailure: headgate.FailOpen, Shadow: true},
	}, &headgate.Options{Observer: func(e headgate.Event) {
		fmt.Println("allowed", e.Decision.Allowed, "planned", e.Shadow.Allowed)
	}})
	if err != nil {
		log.Fatal(err)
	}
	for range 4 {
		if _, err := limiter.Allow(ctx, "user:42"); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// allowed true planned true
	// allowed true planned false
	// allowed true planned false
	// allowed false planned false
}
