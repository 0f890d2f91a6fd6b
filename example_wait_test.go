package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
)

// A worker that may call a service 100 times per second waits for its turn. A deadline
// that is too near is an error at once.
func ExampleLimiter_Wait() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{
		{Name: "service", Algorithm: algo.TokenBucket(algo.PerSecond(100), 1), OnFailure: headgate.FailClosed},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	begin := time.Now()
	for range 4 {
		if _, err := limiter.Wait(ctx, "service"); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("four calls took at least 30ms:", time.Since(begin) >= 30*time.Millisecond)

	near, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err = limiter.Wait(near, "service")
	var late *headgate.DeadlineError
	fmt.Println("too late:", errors.As(err, &late))
	// Output:
	// four calls took at least 30ms: true
	// too late: true
}

// A client calls a partner at most 100 times per second, evenly. A call that would wait longer than
// 50 ms is denied at once.
func ExampleLimiter_Pace() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{
		{Name: "partner", Algorithm: algo.LeakyQueue(algo.PerSecond(100), 1, 50*time.Millisecond), OnFailure: headgate.FailClosed},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	begin := time.Now()
	for range 4 {
		if d, err := limiter.Pace(ctx, "partner"); err != nil || !d.Allowed {
			log.Fatal(err)
		}
	}
	fmt.Println("four calls took at least 30ms:", time.Since(begin) >= 30*time.Millisecond)
	// Output: four calls took at least 30ms: true
}

// Batch jobs stop at 80 % of a limit. The rest is left for calls that a user waits for.
func ExampleLimiter_Headroom() {
	interactive, err := headgate.New(frozen(), []headgate.Policy{
		{Name: "model", Algorithm: algo.SlidingWindow(algo.PerMinute(100)), OnFailure: headgate.FailClosed},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	batch, err := interactive.Headroom(0.2)
	if err != nil {
		log.Fatal(err)
	}
	count := func(limiter *headgate.Limiter) (passed int) {
		for range 100 {
			d, err := limiter.Allow(ctx, "tenant:acme")
			if err != nil {
				log.Fatal(err)
			}
			if d.Allowed {
				passed++
			}
		}
		return passed
	}
	fmt.Println(count(batch), "batch calls pass, then", count(interactive), "interactive ones")
	// Output: 80 batch calls pass, then 20 interactive ones
}
