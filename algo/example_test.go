package algo_test

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/algo"
)

// What each algorithm lets into a trailing window at the worst, under a limit
// of 50 in 10 seconds.
func ExampleAlgorithm_Worst() {
	l := algo.Per(50, 10*time.Second)
	for _, a := range []algo.Algorithm{
		algo.FixedWindow(l),
		algo.SlidingWindow(l),
		algo.BucketedWindow(l, 10),
		algo.SlidingLog(l),
		algo.TokenBucket(l, 50),
		algo.TokenBucket(l, 5),
	} {
		fmt.Println(a.Worst(10*time.Second), a.String())
	}
	// Output:
	// 100 FixedWindow(50 per 10s)
	// 100 SlidingWindow(50 per 10s)
	// 50 BucketedWindow(50 per 10s, 10 buckets)
	// 50 SlidingLog(50 per 10s)
	// 100 TokenBucket(50 per 10s, burst 50)
	// 55 TokenBucket(50 per 10s, burst 5)
}

// An algorithm can be asked about any length of time, not only its period.
func ExampleAlgorithm_Worst_day() {
	a := algo.TokenBucket(algo.PerSecond(10), 100)
	fmt.Println(a.Worst(24 * time.Hour))
	// Output: 864100
}

func ExampleAlgorithm_String() {
	a := algo.TokenBucket(algo.PerSecond(20), 100)
	fmt.Println(a.String())
	// Output: TokenBucket(20 per 1s, burst 100)
}

// Numbers out of range are refused where the algorithm is used, by an error
// that names the value.
func ExampleAlgorithm_Check() {
	a := algo.SlidingLog(algo.PerDay(2_000_000))
	fmt.Println(a.Check())
	// Output: headgate: limit 2000000: want 1 to 1000000
}

// A rate that is a float at run time is a fraction of whole numbers.
func ExampleRate() {
	a := algo.TokenBucket(algo.Rate(2.5), 10)
	fmt.Println(a.String())
	// Output: TokenBucket(5 per 2s, burst 10)
}
