package headgate_test

import (
	"fmt"
	"log"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
)

// A tighter limit is tried on live traffic before it denies anything.
func ExamplePolicy_shadow() {
	limiter, err := headgate.New(frozen(), []headgate.Policy{
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
