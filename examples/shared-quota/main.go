// Shared-quota is eight jobs that share the daily quota of an API they call: a
// read costs 1 unit, a search 100. When the store can't count, reads go on and
// searches wait: OnFailure gives both on the same counts.
//
//	go run ./examples/shared-quota
//	go run ./examples/shared-quota -redis redis://localhost:6379   # in several terminals: one quota
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
)

const (
	jobs       = 8
	quota      = 9500 // units per day, in any 24 hours
	readCost   = 1
	searchCost = 100
	key        = "partner-api"
)

// client asks before each call of the API whether the quota has room.
type client struct {
	reads    *headgate.Limiter // fails open: reads are cheap
	searches *headgate.Limiter // fails closed: searches are not
}

// newClient makes two limiters on one count. A window that slides fits a quota
// that the API counts over any 24 hours.
func newClient(s backend.Store) (*client, error) {
	// 240 buckets: what was used leaves the count 24 hours later, up to 6 minutes late.
	day := algo.BucketedWindow(algo.PerDay(quota), algo.MaxBuckets)
	reads, err := headgate.New(s, []headgate.Policy{{Name: "units", Algorithm: day, OnFailure: headgate.FailOpen}}, nil)
	if err != nil {
		return nil, err
	}
	searches, err := reads.OnFailure(headgate.FailClosed)
	return &client{reads, searches}, err
}

// read and search differ in cost and in failure mode, and share one count.
func (c *client) read(ctx context.Context) (headgate.Decision, error) {
	return c.reads.AllowN(ctx, key, readCost)
}

func (c *client) search(ctx context.Context) (headgate.Decision, error) {
	return c.searches.AllowN(ctx, key, searchCost)
}

// tally is what a job did.
type tally struct{ reads, searches, units int64 }

// job searches once and reads nine times, again and again, until the quota
// denies a read.
func job(ctx context.Context, c *client, t *tally) error {
	for i := 0; ; i++ {
		call, cost, n := c.read, int64(readCost), &t.reads
		if i%10 == 0 {
			call, cost, n = c.search, searchCost, &t.searches
		}
		d, err := call(ctx)
		switch {
		case err != nil:
			return err
		case d.Allowed:
			*n, t.units = *n+1, t.units+cost
			time.Sleep(100 * time.Microsecond) // the call of the API
		case cost == readCost || d.Err != nil: // spent, or not counted: a service would wait for d.RetryAfter
			return d.Err
		}
	}
}

// run lets all jobs run until the quota is spent.
func run(ctx context.Context, c *client) (tallies [jobs]tally, err error) {
	var wait sync.WaitGroup
	var failed atomic.Pointer[error]
	for i := range jobs {
		wait.Add(1)
		go func() {
			defer wait.Done()
			if err := job(ctx, c, &tallies[i]); err != nil {
				failed.Store(&err)
			}
		}()
	}
	wait.Wait()
	if e := failed.Load(); e != nil {
		err = *e
	}
	return tallies, err
}

func main() {
	redis := flag.String("redis", "", "URL of a Redis server; empty: in memory")
	flag.Parse()
	c, err := open(*redis)
	if err != nil {
		log.Fatal(err)
	}
	tallies, err := run(context.Background(), c)
	if err != nil {
		log.Print(err)
	}
	w, sum := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight), int64(0)
	fmt.Fprintln(w, "job\treads\tsearches\tunits\t")
	for i, t := range tallies {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t\n", i+1, t.reads, t.searches, t.units)
		sum += t.units
	}
	_ = w.Flush()
	fmt.Printf("%d of %d units\n", sum, quota)
}

func open(redis string) (*client, error) {
	if redis == "" {
		return newClient(memory.New(nil))
	}
	s, err := standalone.Open(redis, nil)
	if err != nil {
		return nil, err
	}
	return newClient(s)
}
