package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/headgate-go/headgate/middleware/httplimit"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
)

// A call to a model holds a slot and an estimate of tokens until it ends.
func Example_reservation() {
	store := frozen()
	limiter, err := headgate.New(store, []headgate.Policy{
		{Name: "tokens", Algorithm: algo.CompactLog(algo.PerHour(5000)), OnFailure: headgate.FailClosed},
		{Name: "running", Algorithm: algo.InFlight(20), OnFailure: headgate.FailClosed},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	complete := func(context.Context) int64 { return 1200 }

	answer := func(ctx context.Context) (headgate.Decision, error) {
		costs, err := limiter.Costs(nil, map[string]int64{"tokens": 3000}) // an estimate, and a slot
		if err != nil {
			return headgate.Decision{}, err
		}
		r, d, err := limiter.Reserve(ctx, headgate.Call{Key: "tenant:acme", Costs: costs})
		if err != nil || !d.Allowed {
			return d, err
		}
		defer r.Close() // gives all back if there was no Commit, and repeats a failed Commit

		held, release := r.Hold(ctx) // extends the lease while the call runs
		defer release()
		used, err := limiter.Costs(costs, map[string]int64{"tokens": complete(held)}) // 1,200 tokens
		if err != nil {
			return d, err
		}
		return d, r.Commit(ctx, used...) // frees the slot, and gives 1,800 tokens back
	}
	if _, err := answer(ctx); err != nil {
		log.Fatal(err)
	}
	each := make([]headgate.State, 2)
	_, err = limiter.Peek(ctx, headgate.Call{Key: "tenant:acme", Each: each})
	fmt.Println("tokens", each[0].Used, "running", each[1].Used, err)
	// Output: tokens 1200 running 0 <nil>
}

// A worker waits for its turn, for as long as its context lets it.
func Example_wait() {
	limiter, err := headgate.New(frozen(), []headgate.Policy{{
		Name:      "partner",
		Algorithm: algo.TokenBucket(algo.PerSecond(1), 1),
		OnFailure: headgate.FailClosed,
	}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	work := func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		_, err := limiter.Wait(ctx, "partner-api")
		var late *headgate.DeadlineError
		switch {
		case errors.As(err, &late):
			fmt.Println("too late for ctx, it passes in", late.RetryAfter) // Wait returned at once
		case errors.Is(err, headgate.ErrPerhapsCounted):
			fmt.Println("the reply was lost: wait again, if a unit counted twice is the lesser harm")
		case err != nil:
			log.Fatal(err) // ctx has ended, or an argument was out of range
		default:
			fmt.Println("it is this call's turn")
		}
	}
	work(ctx)
	work(ctx)
	// Output:
	// it is this call's turn
	// too late for ctx, it passes in 1s
}

// A job gets a slot in one process and runs in another, which frees the slot.
func Example_handOver() {
	slots, err := headgate.New(frozen(), []headgate.Policy{
		{Name: "running", Algorithm: algo.InFlight(1), OnFailure: headgate.FailClosed},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	var queue []string
	prepare := func(context.Context) error { return nil }
	start := func(ctx context.Context, tenant string, enqueue func(context.Context, string) error) error {
		slot, _, err := slots.WaitReserve(ctx, headgate.Call{Key: tenant, Lease: time.Hour}) // longer than the queue's delay
		if err != nil {
			return err
		}
		held, release := slot.Hold(ctx)
		err = prepare(held)
		release() // the other process extends the lease from now on
		if err == nil {
			err = enqueue(ctx, slot.Token())
		}
		if err != nil { // the slot stays with this process
			return errors.Join(err, slot.Close())
		}
		return nil // neither Commit nor Close
	}

	work := func(context.Context) error { return nil }
	finish := func(ctx context.Context, message string) error {
		slot, err := slots.Resume(message)
		if err != nil {
			return err
		}
		defer slot.Close() // frees the slot
		held, release := slot.Hold(ctx)
		defer release()
		return work(held) // held ends if the lease is over
	}

	running := func() int64 {
		d, err := slots.Peek(ctx, headgate.Call{Key: "tenant:acme"})
		if err != nil {
			log.Fatal(err)
		}
		return d.Used
	}
	err = start(ctx, "tenant:acme", func(context.Context, string) error { return errors.New("the queue is full") })
	fmt.Println(err, running())
	err = start(ctx, "tenant:acme", func(_ context.Context, message string) error {
		queue = append(queue, message)
		return nil
	})
	fmt.Println(err, running())
	fmt.Println(finish(ctx, queue[0]), running())
	// Output:
	// the queue is full 0
	// <nil> 1
	// <nil> 0
}

func Example_testingHandler() {
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	limiter, err := headgate.New(frozen(), []headgate.Policy{{
		Name:      "login",
		Algorithm: algo.SlidingLog(algo.PerMinute(5)),
		OnFailure: headgate.FailOpen,
	}}, nil)
	if err != nil {
		log.Fatal(err)
	}

	limit, err := httplimit.New(limiter, httplimit.RemoteAddr(), nil)
	if err != nil {
		log.Fatal(err)
	}
	handler := limit(hello) // your handler
	for range 6 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/login", nil))
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 200 "login";r=4;t=60
	// 200 "login";r=3;t=60
	// 200 "login";r=2;t=60
	// 200 "login";r=1;t=60
	// 200 "login";r=0;t=60
	// 429 "login";r=0;t=60
}

func ExampleLimiter_WithLimits() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name: "api", Algorithm: algo.SlidingWindow(algo.PerMinute(60)), OnFailure: headgate.FailOpen,
	}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	claims := struct{ PerMinute int64 }{600} // of the tenant's token

	limited, err := limiter.WithLimits(headgate.PolicyLimit{Limit: algo.PerMinute(claims.PerMinute)})
	if err != nil {
		log.Fatal(err)
	}
	d, _ := limited.Allow(ctx, "tenant:7")
	fmt.Println(d.Allowed, d.Limit, d.Remaining)
	// Output: true 600 599
}
