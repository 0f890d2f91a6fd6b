package headgate_test

import (
	"fmt"
	"log"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
)

// The cost of a call to a model is known when it ends. Until then the estimate is
// charged, and one of the tenant's slots is taken.
func ExampleLimiter_Reserve() {
	limiter, err := headgate.New(frozen(), []headgate.Policy{
		{Name: "running", Algorithm: algo.InFlight(20), OnFailure: headgate.FailOpen},
		{Name: "tokens", Algorithm: algo.SlidingLog(algo.PerHour(5000)), OnFailure: headgate.FailOpen},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}

	each := make([]headgate.State, 2) // one per policy
	call := func(estimate, used int64) {
		r, d, err := limiter.Reserve(ctx, headgate.Call{
			Key:   "tenant:acme",
			Costs: []int64{1, estimate}, // one slot, and as many tokens as it may need
			Each:  each,
			Lease: 5 * time.Minute, // the slot is free then, whatever becomes of this process
		})
		if err != nil {
			log.Fatal(err)
		}
		defer func() { _ = r.Close() }() // gives all back, if nothing is committed
		fmt.Println(d.Allowed, "running", each[0].Used, "tokens", each[1].Used)
		if !d.Allowed {
			return
		}
		if err := r.Commit(ctx, 1, used); err != nil {
			log.Fatal(err)
		}
	}
	call(3000, 1200)
	call(3000, 4500) // above the estimate, and above the limit
	call(1, 1)
	// Output:
	// true running 1 tokens 3000
	// true running 1 tokens 4200
	// false running 0 tokens 5700
}

// A gateway answers at once, and the process that bills the call settles it.
func ExampleLimiter_Resume() {
	options := &headgate.Options{TokenKey: []byte("32 random bytes from your secrets")}
	limiter, err := headgate.New(frozen(), []headgate.Policy{
		{Name: "tokens", Algorithm: algo.SlidingLog(algo.PerHour(5000)), OnFailure: headgate.FailOpen},
	}, options)
	if err != nil {
		log.Fatal(err)
	}

	r, _, err := limiter.Reserve(ctx, headgate.Call{Key: "tenant:acme", Costs: []int64{3000}})
	if err != nil {
		log.Fatal(err)
	}
	token := r.Token() // a secret: whoever has it can settle

	billed, err := limiter.Resume(token) // in the other process, of a limiter with the same key
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(billed.Commit(ctx, 1200))
	fmt.Println(r.Commit(ctx, 3000))
	// Output:
	// <nil>
	// headgate: lease not held, nothing changed
}

// A record charges what has happened already. Later calls wait until it has aged.
func ExampleLimiter_Record() {
	limiter, err := headgate.New(frozen(), []headgate.Policy{
		{Name: "bytes", Algorithm: algo.TokenBucket(algo.PerSecond(1000), 1000), OnFailure: headgate.FailOpen},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	d, err := limiter.Record(ctx, headgate.Call{Key: "upload:7", Costs: []int64{2500}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("used", d.Used, "of", d.Limit)
	d, err = limiter.AllowN(ctx, "upload:7", 500)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Allowed, "retry after", d.RetryAfter)
	// Output:
	// used 2500 of 1000
	// false retry after 2s
}

// A job takes as many units as there are, and does as much work.
func ExampleLimiter_AllowAtMost() {
	limiter, err := headgate.New(frozen(), []headgate.Policy{
		{Name: "rows", Algorithm: algo.FixedWindow(algo.PerMinute(1000)), OnFailure: headgate.FailClosed},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		d, err := limiter.AllowAtMost(ctx, "export", 600)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Passed)
	}
	// Output:
	// true 600
	// true 400
	// false 0
}
