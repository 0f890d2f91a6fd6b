package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
)

// A call counts for a user and for the user's organisation, and passes only if both
// have room. What one of them denies is charged to neither.
func ExampleAll() {
	perUser, err := headgate.New(frozen(), []headgate.Policy{
		{Name: "user", Algorithm: algo.SlidingWindow(algo.PerMinute(2)), OnFailure: headgate.FailOpen},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	perOrg, err := perUser.With(headgate.Policy{
		Name: "org", Algorithm: algo.SlidingWindow(algo.PerMinute(3)), OnFailure: headgate.FailOpen,
	})
	if err != nil {
		log.Fatal(err)
	}

	for _, user := range []string{"user:1", "user:1", "user:1", "user:2", "user:2"} {
		d, err := headgate.All(ctx, perUser.Part(user), perOrg.Part("org:7"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user, d.Allowed, "by", d.Key, d.Used, "of", d.Limit)
	}
	// Output:
	// user:1 true by user:1 1 of 2
	// user:1 true by user:1 2 of 2
	// user:1 false by user:1 2 of 2
	// user:2 true by org:7 3 of 3
	// user:2 false by org:7 3 of 3
}

// Calls are taken from a user's allowance, and from bought credits once that is spent.
func ExampleFirst() {
	allowance, err := headgate.New(frozen(), []headgate.Policy{
		{Name: "allowance", Algorithm: algo.Calendar(2, algo.Month(1), time.UTC), OnFailure: headgate.FailOpen},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	credits, err := allowance.With(headgate.Policy{
		Name: "credits", Algorithm: algo.FixedWindow(algo.Per(1, 400*24*time.Hour)), OnFailure: headgate.FailClosed,
	})
	if err != nil {
		log.Fatal(err)
	}

	user := "user:42"
	for range 4 {
		d, err := headgate.First(ctx, allowance.Part(user), credits.Part(user))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, "by part", d.At, d.Policy, d.Remaining, "left")
	}
	// Output:
	// true by part 0 allowance 1 left
	// true by part 0 allowance 0 left
	// true by part 1 credits 0 left
	// false by part 0 allowance 0 left
}

// The tokens of a tenant and of its organisation are estimated, and settled by what
// was used.
func ExampleReserveAll() {
	perTenant, err := headgate.New(frozen(), []headgate.Policy{
		{Name: "tenant-running", Algorithm: algo.InFlight(5), OnFailure: headgate.FailOpen},
		{Name: "tenant-tokens", Algorithm: algo.SlidingLog(algo.PerHour(5000)), OnFailure: headgate.FailOpen},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	perOrg, err := perTenant.With(headgate.Policy{
		Name: "org-tokens", Algorithm: algo.SlidingLog(algo.PerHour(8000)), OnFailure: headgate.FailOpen,
	})
	if err != nil {
		log.Fatal(err)
	}

	call := func(tenant string, estimate, used int64) {
		rs, d, err := headgate.ReserveAll(ctx, perTenant.Part(tenant, 1, estimate), perOrg.Part("org:7", estimate))
		if err != nil {
			log.Fatal(err)
		}
		defer func() { _ = rs.Close() }() // gives all back, if nothing is committed
		fmt.Println(tenant, d.Allowed, "by", d.Policy, d.Remaining, "left")
		if d.Allowed {
			if err := rs.Commit(ctx, []int64{1, used}, []int64{used}); err != nil {
				log.Fatal(err)
			}
		}
	}
	call("a", 3000, 1200)
	call("a", 3000, 2800)
	call("b", 4500, 500)
	call("b", 3000, 3000)
	// Output:
	// a true by tenant-running 4 left
	// a true by tenant-running 4 left
	// b false by org-tokens 4000 left
	// b true by tenant-running 4 left
}

// A job holds a slot of its tenant and one of all while it runs, and waits for its turn at each
// call that it makes. It waits under one context, which a shutdown ends, and works under another.
func ExampleLimiter_WaitReserve() {
	policy := func(name string, a algo.Algorithm) headgate.Policy {
		return headgate.Policy{Name: name, Algorithm: a, OnFailure: headgate.FailClosed}
	}
	perTenant, err := headgate.New(memory.New(nil), []headgate.Policy{policy("tenant-running", algo.InFlight(2))}, nil)
	total, totalErr := perTenant.With(policy("running", algo.InFlight(3)))
	rate, rateErr := perTenant.With(policy("rate", algo.TokenBucket(algo.PerSecond(100), 10)))
	if err := errors.Join(err, totalErr, rateErr); err != nil {
		log.Fatal(err)
	}
	// slot waits under wait. The context that it returns is work's, and ends if the slot is lost.
	slot := func(wait, work context.Context, slots *headgate.Limiter, key string) (context.Context, func(), error) {
		r, _, err := slots.WaitReserve(wait, headgate.Call{Key: key})
		if err != nil {
			return nil, nil, err
		}
		held, release := r.Hold(work)
		return held, func() { release(); r.Close() }, nil
	}
	job := func(wait, work context.Context, tenant string, inputs []string) error {
		own, free, err := slot(wait, work, perTenant, tenant) // first, or one tenant's jobs take all slots
		if err != nil {
			return err
		}
		defer free()
		held, freeTotal, err := slot(wait, own, total, "jobs")
		if err != nil {
			return err
		}
		defer freeTotal()
		for _, input := range inputs {
			if _, err := rate.Wait(held, "gpu"); err != nil {
				return err
			}
			fmt.Println(tenant, "sends", input)
		}
		return nil
	}

	stopping, shutdown := context.WithCancel(ctx)
	fmt.Println(job(stopping, ctx, "a", []string{"one", "two"}))
	shutdown() // ends waits, but no work
	err = job(stopping, ctx, "a", []string{"three"})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output:
	// a sends one
	// a sends two
	// <nil>
	// true
}

// A quota per calendar month of a customer's time zone.
func Example_calendar() {
	zone, err := time.LoadLocation("Asia/Kolkata")
	if err != nil {
		log.Fatal(err)
	}
	store := frozen()
	limiter, err := headgate.New(store, []headgate.Policy{{
		Name: "month", Algorithm: algo.Calendar(10_000, algo.Month(1), zone), OnFailure: headgate.FailClosed,
	}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	d, err := limiter.Allow(ctx, "customer:7")
	fmt.Println(d.Remaining, "left for", d.ResetAfter, err)
	// Output: 9999 left for 288h16m40s <nil>
}

// Two tenants share a service that takes 100 calls per second. They pass by turns,
// however many calls each has.
func ExampleWaitAll() {
	perTenant, err := headgate.New(memory.New(nil), []headgate.Policy{
		{Name: "tenant", Algorithm: algo.TokenBucket(algo.PerSecond(80), 10), OnFailure: headgate.FailClosed},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	shared, err := perTenant.With(headgate.Policy{
		Name: "service", Algorithm: algo.TokenBucket(algo.PerSecond(100), 1), OnFailure: headgate.FailClosed,
	})
	if err != nil {
		log.Fatal(err)
	}
	passed := 0
	for _, tenant := range []string{"a", "b", "a"} {
		_, err := headgate.WaitAll(ctx, perTenant.Part(tenant), shared.Part("gpu"))
		if err != nil {
			log.Fatal(err)
		}
		passed++
	}
	fmt.Println(passed, "calls passed")
	// Output: 3 calls passed
}

// A list of recipients that a client sent: one that is named twice counts once, and a list
// that is too long is denied.
func ExampleAll_list() {
	limiter, err := headgate.New(frozen(), []headgate.Policy{perMinute}, nil)
	if err != nil {
		log.Fatal(err)
	}
	send := func(recipients []string) (bool, error) {
		slices.Sort(recipients)
		recipients = slices.Compact(recipients)
		if n := len(recipients); n == 0 || n > 16 {
			return false, nil // a denial: the request is wrong, not the program
		}
		var parts []headgate.Part
		for _, r := range recipients {
			parts = append(parts, limiter.Part(headgate.Key("to", r)))
		}
		d, err := headgate.All(ctx, parts...)
		return d.Allowed, err
	}

	fmt.Println(send([]string{"ann", "bob", "ann"}))
	fmt.Println(send(strings.Split("a b c d e f g h i j k l m n o p q", " ")))
	// Output:
	// true <nil>
	// false <nil>
}
