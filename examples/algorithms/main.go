// Algorithms draws what each algorithm lets pass of the same traffic. That is four days
// under a limit of 100 per day, hour by hour, on a clock of its own.
//
//	go run ./examples/algorithms > docs/algorithms.svg
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "algorithms:", err)
		os.Exit(1)
	}
}

func run(w io.Writer) error {
	rows, err := decideAll(context.Background())
	if err != nil {
		return err
	}
	draw(w, rows)
	return nil
}

const (
	limit = 100 // per day
	hours = 96
	day   = 24
)

// calls is the traffic per hour. It has days at work, and a job that runs around
// midnight of the second day. Last comes a client in a loop from noon of the third day
// on.
func calls(hour int) int {
	switch {
	case hour == 47 || hour == 48:
		return 90
	case hour >= 60:
		return 12
	case hour%day >= 8 && hour%day < 18:
		return 7
	}
	return 1
}

// begin is a midnight in UTC. In the zone of the Calendar it is two o'clock.
var (
	begin = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	zone  = time.FixedZone("UTC+2", 2*60*60)
)

// row is what an algorithm made of the traffic.
type row struct {
	name           string
	passed, denied [hours]int
	total, densest int // of all hours, and of any 24 hours
}

func decideAll(ctx context.Context) (rows []row, err error) {
	l := algo.PerDay(limit)
	for _, a := range []struct {
		name string
		algo.Algorithm
	}{
		{"FixedWindow", algo.FixedWindow(l)},
		{"Calendar, day in UTC+2", algo.Calendar(limit, algo.Day(), zone)},
		{"SlidingWindow", algo.SlidingWindow(l)},
		{"BucketedWindow(12)", algo.BucketedWindow(l, 12)},
		{"SlidingLog, CompactLog", algo.CompactLog(l)},
		{"TokenBucket, burst 100", algo.TokenBucket(l, limit)},
		{"TokenBucket, burst 10", algo.TokenBucket(l, 10)},
	} {
		r, err := decide(ctx, a.Algorithm)
		if err != nil {
			return nil, err
		}
		r.name = a.name
		rows = append(rows, r)
	}
	return rows, nil
}

func decide(ctx context.Context, a algo.Algorithm) (r row, err error) {
	now := begin
	limiter, err := headgate.New(memory.New(&memory.Options{Now: func() time.Time { return now }}),
		[]headgate.Policy{{Name: "calls", Algorithm: a, OnFailure: headgate.FailClosed}}, nil)
	if err != nil {
		return r, err
	}
	var passed []time.Time
	for hour := range hours {
		n := calls(hour)
		for i := range n {
			now = begin.Add(time.Duration(hour)*time.Hour + time.Duration(i)*time.Hour/time.Duration(n))
			d, err := limiter.Allow(ctx, "client")
			if err != nil {
				return r, err
			}
			if !d.Allowed {
				r.denied[hour]++
				continue
			}
			r.passed[hour]++
			r.total++
			passed = append(passed, now)
			first := 0
			for !passed[first].After(now.Add(-day * time.Hour)) {
				first++
			}
			r.densest = max(r.densest, len(passed)-first)
		}
	}
	return r, nil
}
