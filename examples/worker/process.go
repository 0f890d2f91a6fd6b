package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
)

// start runs all processes, and returns the jobs of each.
func start(ctx context.Context, redis, key string) ([][]job, error) {
	store := memory.New(nil)
	all, errs := make([][]job, processes), make([]error, processes)
	var running sync.WaitGroup
	for i := range processes {
		running.Add(1)
		go func() {
			defer running.Done()
			if redis != "" {
				all[i], errs[i] = child(ctx, redis, key)
				return
			}
			l, err := newLimiter(store)
			if err == nil {
				all[i], err = runJobs(ctx, l, key)
			}
			errs[i] = err
		}()
	}
	running.Wait()
	return all, errors.Join(errs...)
}

// child runs this program once more, as one of the processes.
func child(ctx context.Context, redis, key string) (jobs []job, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, program, "-redis", redis, "-process", key)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, err
	}
	return jobs, json.Unmarshal(out, &jobs)
}

// process is one of several, which share nothing but the server. It prints its jobs
// as JSON.
func process(ctx context.Context, w io.Writer, redis, key string) error {
	store, err := standalone.Open(redis, &standalone.Options{Budget: 10 * time.Second})
	if err != nil {
		return err
	}
	defer store.Close()
	l, err := newLimiter(store)
	if err != nil {
		return err
	}
	jobs, err := runJobs(ctx, l, key)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(jobs)
}
