package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/oracle"
)

// job is a reservation under an ID of the caller's, and the model's; nil: none has passed.
type job struct {
	call    headgate.Call
	limiter int
	lease   *oracle.Lease
}

// job returns that of a step, which has one of two IDs of its key.
func (w *world) job(s *step) *job {
	key, id := w.key(s.key), fmt.Sprint("job ", s.draw[2]%2)
	j := w.jobs[key+" "+id]
	if j == nil {
		j = &job{call: headgate.Call{Key: key, ID: id, Costs: w.costs(s, false), Lease: lengths[0]}, limiter: s.limiter}
		w.jobs[key+" "+id] = j
	}
	return j
}

// reserveJob reserves a job, in most cases by the list and the costs of before.
func (w *world) reserveJob(s *step) error {
	j, limiter := w.job(s), s.limiter
	c := j.call
	if c.Lease = lengths[s.draw[3]%4]; s.draw[2]>>8%4 > 0 && w.p.shards[j.limiter] < 2 {
		limiter = j.limiter
	} else {
		c.Costs = w.costs(s, false)
	}
	part := w.part(limiter, s.key, c.Costs, true)
	c.Each = part.Each
	for from := time.Now(); time.Since(from) < 2*time.Microsecond; { // attempts are instants
	}
	open := j.lease.Open(w.model.Now)
	sure, _ := w.model.Sure(backend.Reserve, []oracle.Part{part})
	lost := w.losing(s, sure && !open)
	_, d, err := w.limiters[limiter].Reserve(context.Background(), c)
	w.say("limiter %d: Reserve(%d, %v, %v) of %s = %v, %v", limiter, s.key, c.Costs, c.Lease, c.ID, show(&d), err)
	if lost && w.found() {
		return w.lostJob(j, limiter, part, c, &d, err)
	}
	if open {
		return w.again(j, part, c, &d, err)
	}
	if err != nil {
		return fmt.Errorf("error: %w", err)
	}
	delete(w.denied, part.Key) // a denial of a job is not remembered
	if d.Source != headgate.FromStore || d.Err != nil {
		return fmt.Errorf("no store decided: %v", show(&d))
	}
	w.last = d.State
	leases, err := w.model.Do(backend.Reserve, []oracle.Part{part}, c.Lease, &d)
	if err != nil {
		return err
	}
	w.opened(j, limiter, c, leases)
	return w.look(part)
}

// opened notes the lease of a Reserve that passed.
func (w *world) opened(j *job, limiter int, c headgate.Call, leases []*oracle.Lease) {
	if c.Each = nil; len(leases) > 0 {
		j.call, j.limiter, j.lease = c, limiter, leases[0]
	}
}

// again compares the answer of a Reserve whose ID is held.
func (w *world) again(j *job, part oracle.Part, c headgate.Call, d *headgate.Decision, err error) error {
	want := w.model.Again(j.lease, part, c.Lease)
	switch {
	case errors.As(want, new(*backend.InvalidError)):
		if !errors.As(err, new(*headgate.InvalidError)) {
			return fmt.Errorf("reserved by another list or other costs: %w", err)
		}
	case !errors.Is(err, want) || err != nil && want == nil:
		return fmt.Errorf("the Reserve is %w, want %w", err, want)
	case err == nil && (!d.Allowed || d.Source != headgate.FromStore || d.RetryAfter != 0):
		return fmt.Errorf("the same reservation: %v", show(d))
	case err == nil:
		j.call.Lease = c.Lease
	}
	return w.look(part)
}

// lostJob goes on with a job whose answer was lost. It is not cancelled.
func (w *world) lostJob(j *job, limiter int, part oracle.Part, c headgate.Call, d *headgate.Decision, err error) error {
	leases, e := w.model.Do(backend.Reserve, []oracle.Part{part}, c.Lease, nil)
	if e != nil {
		return e
	}
	if e := w.unknown(backend.Reserve, part, d, err); e != nil {
		return e
	}
	w.opened(j, limiter, c, leases)
	return w.look(part)
}

// settleJob commits, cancels or extends a job by its ID.
func (w *world) settleJob(s *step) error {
	j := w.job(s)
	if w.p.shards[j.limiter] > 1 {
		return nil
	}
	r, list, ctx := w.limiters[j.limiter].Reserved(j.call), w.p.lists[j.limiter], context.Background()
	if s.draw[0]%4 == 0 {
		err := r.Extend(ctx)
		w.say("Extend of %s of %d = %v", j.call.ID, s.key, err)
		if want := w.model.ExtendJob(j.lease); !errors.Is(err, want) || err != nil && want == nil {
			return fmt.Errorf("the Extend is %w, want %w", err, want)
		}
		return w.look(w.at(j.limiter, j.call.Key))
	}
	actual := make([]int64, len(list))
	settle := func() error { return r.Cancel(ctx) }
	if s.draw[0]%4 > 1 {
		for i := range list {
			if n := s.draw[4+i]; list[i].Algorithm.Kind() != rule.KindInFlight && n%4 > 0 {
				actual[i] = int64(n >> 8 % uint64(1+2*w.most(j.limiter, &list[i])))
			}
		}
		settle = func() error { return r.Commit(ctx, actual...) }
	}
	delete(w.denied, j.call.Key)
	if lost := w.losing(s, true); lost {
		err := settle()
		w.found()
		w.say("settled %s of %d by %v = %v", j.call.ID, s.key, actual, err)
	}
	err := settle()
	w.say("settled %s of %d by %v = %v", j.call.ID, s.key, actual, err)
	if want := w.model.SettleJob(j.lease, actual, list); !errors.Is(err, want) || err != nil && want == nil {
		return fmt.Errorf("the settle is %w, want %w", err, want)
	}
	if j.lease != nil && j.lease.Gave {
		w.given(j.call.Key, list)
		j.lease.Gave = false
	}
	return w.look(w.at(j.limiter, j.call.Key))
}
