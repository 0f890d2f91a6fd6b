// Cluster calls a limiter on a Redis Cluster, some 2,000 times per second. Once per
// second it prints the sources of the decisions and the circuits. Kill a primary
// meanwhile: its keys get their failure modes until its replica has taken over. All
// others are served as before.
//
//	docker compose -f docker-compose.cluster.yml up -d
//	go run ./examples/cluster -for 30s
//	docker compose -f docker-compose.cluster.yml kill node-7000   # in another terminal
//
// It ends with an error if a call got no answer, or the store gave none.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/cluster"
)

// 997 is prime, so the callers' strides pass all keys. 8 callers with a pause
// of 4 ms make some 2,000 calls per second, which a laptop's cluster carries.
const (
	callers = 8
	keys    = 997                  // in slots all over the cluster
	pause   = 4 * time.Millisecond // between two calls of a caller
)

func main() {
	addrs := flag.String("addrs", "127.0.0.1:7000,127.0.0.1:7001,127.0.0.1:7002", "host:port of some of the nodes, with commas between")
	length := flag.Duration("for", 10*time.Second, "how long to call")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *length)
	defer cancel()
	if err := run(ctx, os.Stdout, strings.Split(*addrs, ","), time.Second); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// run calls until ctx ends and prints a line every so often.
func run(ctx context.Context, w io.Writer, addrs []string, every time.Duration) error {
	store, err := cluster.Open(addrs, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	seen := newTally()
	sites, err := callSites(store, seen)
	if err != nil {
		return err
	}
	var calling sync.WaitGroup
	for i := range callers {
		calling.Add(1)
		go func() {
			defer calling.Done()
			call(ctx, sites, seen, i)
		}()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			seen.line(w, sites[0].Stats().Circuits)
		case <-ctx.Done():
			calling.Wait()
			return seen.summary(w)
		}
	}
}

// callSites are three limiters on the same counts that differ in what a call
// gets when its node can't be asked.
func callSites(store *cluster.Store, seen *tally) ([]*headgate.Limiter, error) {
	open, err := headgate.New(store, []headgate.Policy{{
		Name:      "api",
		Algorithm: algo.TokenBucket(algo.PerSecond(1000), 1000),
		OnFailure: headgate.FailOpen,
	}}, &headgate.Options{Observer: seen.observe, Instances: 4})
	if err != nil {
		return nil, err
	}
	closed, err := open.OnFailure(headgate.FailClosed)
	if err != nil {
		return nil, err
	}
	local, err := open.OnFailure(headgate.FailLocal)
	return []*headgate.Limiter{open, closed, local}, err
}

// call makes one caller's calls. They have no deadline of their own: the
// store's budget is one.
func call(ctx context.Context, sites []*headgate.Limiter, seen *tally, caller int) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for i := caller; ; i += callers {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		key := headgate.Key("user", fmt.Sprint(i%keys))
		if _, err := sites[i%len(sites)].Allow(context.Background(), key); err != nil {
			seen.failed(err)
		}
	}
}
