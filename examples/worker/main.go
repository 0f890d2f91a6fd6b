// Worker is four processes that run jobs against one slow service. The service takes 50
// jobs per second, 10 at once after a rest, and runs at most two at a time. Each job
// waits for its turn: no worker is denied, and none polls in a loop.
//
//	go run ./examples/worker                                  in memory: four groups of one process
//	go run ./examples/worker -redis redis://localhost:6379    four processes that share the limit
//
// It ends with an error if more jobs began, or ran at once, than the limits allow.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

const (
	processes = 4
	workers   = 3 // per process
	jobs      = 5 // per worker
	rate      = 50
	burst     = 10
	slots     = 2
	work      = 5 * time.Millisecond // of a job
)

func main() {
	redis := flag.String("redis", "", "URL of a Redis server; empty: in memory")
	one := flag.String("process", "", "be one of the processes, on the keys of this name, and print its jobs")
	flag.Parse()
	ctx := context.Background()
	var err error
	if *one != "" {
		err = process(ctx, os.Stdout, *redis, *one)
	} else {
		err = run(ctx, os.Stdout, *redis)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// job is one that has run.
type job struct {
	Waited     time.Duration
	Began, End time.Time
}

// newLimiter returns the limiter that every process makes alike.
func newLimiter(store backend.Store) (*headgate.Limiter, error) {
	return headgate.New(store, []headgate.Policy{
		{Name: "jobs", Algorithm: algo.TokenBucket(algo.PerSecond(rate), burst), OnFailure: headgate.FailClosed},
		{Name: "running", Algorithm: algo.InFlight(slots), OnFailure: headgate.FailClosed},
	}, nil)
}

// one waits for its turn, runs a job and gives its slot back.
func one(ctx context.Context, l *headgate.Limiter, key string) (j job, err error) {
	asked := time.Now()
	r, _, err := l.WaitReserve(ctx, headgate.Call{Key: key, Lease: 10 * time.Second})
	if err != nil {
		return j, err
	}
	j.Began = time.Now()
	j.Waited = j.Began.Sub(asked)
	time.Sleep(work) // the job; one that may outlast its lease runs under r.Hold
	j.End = time.Now()
	return j, r.Commit(ctx)
}

// runJobs runs a process's jobs, several at a time.
func runJobs(ctx context.Context, l *headgate.Limiter, key string) ([]job, error) {
	done, errs := make([]job, workers*jobs), make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := w * jobs; i < (w+1)*jobs && errs[w] == nil; i++ {
				done[i], errs[w] = one(ctx, l, key)
			}
		}()
	}
	all.Wait()
	return done, errors.Join(errs...)
}

// run has all processes run, prints what each has done, and judges it.
func run(ctx context.Context, w io.Writer, redis string) error {
	key := headgate.Key("service", fmt.Sprint(time.Now().UnixNano()))
	begin := time.Now()
	all, err := start(ctx, redis, key)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "process  jobs  longest wait")
	for i, jobs := range all {
		longest := time.Duration(0)
		for _, j := range jobs {
			longest = max(longest, j.Waited)
		}
		fmt.Fprintf(w, "%7d  %4d  %12v\n", i+1, len(jobs), longest.Round(time.Millisecond))
	}
	began, running := judge(all)
	length := time.Since(begin)
	most := burst + int(rate*length.Seconds())
	fmt.Fprintf(w, "%d jobs in %v, at most %d at a time\n", began, length.Round(time.Millisecond), running)
	if began > most || running > slots {
		return fmt.Errorf("the limits are %d jobs in that time and %d at a time", most, slots)
	}
	return nil
}

// judge counts the jobs, and the most that ran at one instant.
func judge(all [][]job) (began, most int) {
	for _, jobs := range all {
		began += len(jobs)
		for _, j := range jobs {
			n := 0
			for _, others := range all {
				for _, o := range others {
					if !o.Began.After(j.Began) && o.End.After(j.Began) {
						n++
					}
				}
			}
			most = max(most, n)
		}
	}
	return began, most
}
