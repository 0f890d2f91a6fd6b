package memory_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
)

// A clock of the test's own makes an hour pass at once.
func ExampleOptions_now() {
	now := time.Unix(1_745_000_000, 0)
	store := memory.New(&memory.Options{Now: func() time.Time { return now }})
	limiter, err := headgate.New(store, []headgate.Policy{{
		Name:      "export",
		Algorithm: algo.TokenBucket(algo.PerHour(4), 1),
		OnFailure: headgate.FailClosed,
	}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for range 3 {
		d, _ := limiter.Allow(ctx, "user:42")
		fmt.Println(d.Allowed, d.RetryAfter)
		now = now.Add(10 * time.Minute)
	}
	// Output:
	// true 0s
	// false 5m0s
	// true 0s
}

// What is unused leaves by itself, while others call.
func ExampleStore_Len() {
	store := memory.New(nil)
	limiter, err := headgate.New(store, []headgate.Policy{{
		Name:      "api",
		Algorithm: algo.FixedWindow(algo.PerDay(1000)),
		OnFailure: headgate.FailClosed,
	}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, key := range []string{"user:1", "user:2", "user:1"} {
		_, _ = limiter.Allow(context.Background(), key)
	}
	fmt.Println(store.Len(), "counts")
	// Output: 2 counts
}

// Counts that survive a restart: the next process begins with them.
func ExampleOptions_file() {
	folder, err := os.MkdirTemp("", "counts")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(folder) }()
	for range 2 { // two lives of a process
		store := memory.New(&memory.Options{File: filepath.Join(folder, "counts")})
		limiter, err := headgate.New(store, []headgate.Policy{{
			Name:      "mails",
			Algorithm: algo.Calendar(3, algo.Month(1), time.UTC),
			OnFailure: headgate.FailClosed,
		}}, nil)
		if err != nil {
			fmt.Println(err) // a file that can't be used, too
			return
		}
		for range 2 {
			d, _ := limiter.Allow(context.Background(), "tenant:7")
			fmt.Println(d.Allowed, d.Remaining)
		}
		if err := store.Close(); err != nil { // writes the file
			fmt.Println(err)
		}
	}
	// Output:
	// true 2
	// true 1
	// true 0
	// false 0
}
