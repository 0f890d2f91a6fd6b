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
		if _, err := limiter.Wait(ctx, headgate.Call{Key: "service"}); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("four calls took at least 30ms:", time.Since(begin) >= 30*time.Millisecond)

	near, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err = limiter.Wait(near, headgate.Call{Key: "service"})
	var late *headgate.DeadlineError
	fmt.Println("too late:", errors.As(err, &late))
	// Output:
	// four calls took at least 30ms: true
	// too late: true
}
