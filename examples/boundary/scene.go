package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

const (
	limit    = 50
	window   = 10 * time.Second
	calls    = 50          // in each of the two bursts
	distance = time.Second // from the boundary
)

// scene is where the bursts happen: a store, and a clock that gets there.
// Memory and Redis differ only in reach, so both run the same code.
type scene struct {
	store    backend.Store
	key      string
	boundary time.Time
	reach    func(ctx context.Context, t time.Time) error // returns when the store's clock shows t
	exact    bool                                         // the calls of a burst share one instant, so what passes is known
}

// row is one algorithm and what it let pass.
type row struct {
	policy  headgate.Policy
	expect  int // what its rule lets pass, where the scene is exact; else 0
	limiter *headgate.Limiter
	passed  [2][]bool // each burst's calls, in order
}

// cast are the algorithms, each with what its rule lets pass.
func cast() []*row {
	l := algo.Per(limit, window)
	return []*row{
		part("FixedWindow", algo.FixedWindow(l), 100),
		part("SlidingWindow", algo.SlidingWindow(l), 55),    // 50 of the window before weigh 45
		part("TokenBucket", algo.TokenBucket(l, limit), 60), // 10 refill in the 2 s between
		part("BucketedWindow", algo.BucketedWindow(l, 10), 50),
		part("SlidingLog", algo.SlidingLog(l), 50),
	}
}

// part fails closed, so a call that no store decided ends the run rather than
// passing.
func part(name string, a algo.Algorithm, expect int) *row {
	return &row{policy: headgate.Policy{Name: name, Algorithm: a, OnFailure: headgate.FailClosed}, expect: expect}
}

// fresh is a key of its own. It is so plain that it stands in the
// stored key as it is.
func fresh() string { return headgate.Key("boundary", fmt.Sprint(time.Now().UnixNano())) }

// play makes both bursts and forgets the key.
func (s *scene) play(ctx context.Context) (rows []*row, err error) {
	rows = cast()
	for _, r := range rows {
		if err := r.enter(ctx, s); err != nil {
			return nil, err
		}
	}
	defer func() { err = errors.Join(err, leave(rows, s.key)) }()
	for i, at := range []time.Time{s.boundary.Add(-distance), s.boundary.Add(distance)} {
		if err := s.reach(ctx, at); err != nil {
			return nil, err
		}
		if err := burst(ctx, rows, s.key, i); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// enter makes the limiter. The peek sees to it that the first burst finds an
// open connection and a loaded script.
func (r *row) enter(ctx context.Context, s *scene) (err error) {
	if !s.exact {
		r.expect = 0
	}
	r.limiter, err = headgate.New(s.store, []headgate.Policy{r.policy}, nil)
	if err != nil {
		return err
	}
	d, err := r.limiter.Peek(ctx, headgate.Call{Key: s.key})
	return errors.Join(err, d.Err)
}

// leave removes the key, which is unused after the run. It has its own
// context: the user may have interrupted the other.
func leave(rows []*row, key string) error {
	var errs []error
	for _, r := range rows {
		errs = append(errs, r.limiter.Reset(context.Background(), key))
	}
	return errors.Join(errs...)
}

// burst makes every algorithm's calls, one after the other, and all algorithms
// at the same time. None should get a later instant because it is listed last.
func burst(ctx context.Context, rows []*row, key string, i int) error {
	errs := make([]error, len(rows))
	var all sync.WaitGroup
	for n, r := range rows {
		all.Add(1)
		go func() {
			defer all.Done()
			errs[n] = r.call(ctx, key, i)
		}()
	}
	all.Wait()
	return errors.Join(errs...)
}

func (r *row) call(ctx context.Context, key string, i int) error {
	for range calls {
		d, err := r.limiter.Allow(ctx, key)
		if err = errors.Join(err, d.Err); err != nil {
			return err
		}
		r.passed[i] = append(r.passed[i], d.Allowed)
	}
	return nil
}
