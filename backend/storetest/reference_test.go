package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/redistest"
)

// reference is the least store that keeps the contract: a map under a lock,
// and the rules of package algo. Nothing in it is fast or leaves by itself.
type reference struct {
	now  func() int64
	lose atomic.Bool // the next reply
	gone atomic.Bool // the next request
	mu   struct {
		sync.Mutex
		closed bool
		cells  map[cell][]int64 // nil words are garbage
		until  map[cell]int64   // when a cell may go
	}
}

type cell struct {
	key, sub, policy string
	shadow           bool
	identity         rule.Identity
}

func newReference(now func() int64) *reference {
	s := &reference{now: now}
	s.mu.cells, s.mu.until = map[cell][]int64{}, map[cell]int64{}
	return s
}

func (s *reference) Check(policies []backend.Policy) error { return backend.CheckPolicies(policies) }

func (s *reference) Capabilities() backend.Capabilities { return backend.Basic }

func (s *reference) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	return nil
}

func (s *reference) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return backend.ErrClosed
	}
	if err := r.Check(ctx, backend.Basic); err != nil {
		return err
	}
	if s.gone.CompareAndSwap(true, false) {
		return backend.ErrUnavailable
	}
	err := s.decide(r, d)
	if s.lose.CompareAndSwap(true, false) {
		*d = backend.Decision{}
		return backend.ErrPerhapsCounted
	}
	return err
}

func (s *reference) decide(r *backend.Request, d *backend.Decision) error {
	now, fits := s.now(), true
	readings := make([]backend.Reading, len(r.Policies))
	for i := range r.Policies {
		a, c := &r.Policies[i].Algorithm, cellOf(&r.Group, i)
		w, ok := s.mu.cells[c]
		if r.Op == backend.Reset {
			delete(s.mu.cells, c)
			w, ok = nil, false
		}
		if ok && w == nil {
			return &backend.CorruptError{Key: r.Key, Stored: fmt.Sprint(c)}
		}
		if !ok {
			w = make([]int64, a.Words())
		}
		v := a.View(w, now)
		readings[i] = backend.Reading{Used: a.Shown(&v), ResetAt: a.ResetAt(&v)}
		if n := oneOf(r, i); r.Op != backend.Reset && !a.Fits(&v, n) {
			readings[i].RetryAt, fits = a.RetryAt(w, &v, n), fits && r.Policies[i].Shadow
		} else if r.Op == backend.Peek && n > 0 {
			readings[i].Delay = a.Delay(&v, n)
		}
	}
	if fits && r.Op == backend.Take {
		s.charge(r, now, readings)
	}
	r.Decide(now, readings, d)
	return nil
}

// oneOf returns the cost of the i-th policy that is charged at once, or by the call: by an UpTo,
// and a shadow by any run.
func oneOf(r *backend.Request, i int) int64 {
	if r.Run > 0 && !r.UpTo && r.Policies[i].Shadow {
		return r.CostOf(i) / r.Run
	}
	return r.CostOf(i)
}

func (s *reference) charge(r *backend.Request, now int64, readings []backend.Reading) {
	passed := r.Run
	room := func(i int) int64 {
		a := &r.Policies[i].Algorithm
		if n := oneOf(r, i); n > 0 && readings[i].RetryAt > 0 {
			return 0
		} else if n > 0 {
			w := s.mu.cells[cellOf(&r.Group, i)]
			if w == nil {
				w = make([]int64, a.Words())
			}
			v := a.View(w, now)
			return max(0, a.Max()-v.Used) / n
		}
		return r.Run
	}
	for i := range r.Policies {
		if r.UpTo && !r.Policies[i].Shadow {
			passed = min(passed, room(i))
		}
	}
	for i := range r.Policies {
		a, c := &r.Policies[i].Algorithm, cellOf(&r.Group, i)
		w := s.mu.cells[c]
		n, times := oneOf(r, i), int64(1)
		if readings[i].Passed = passed; r.Run > 0 && r.Policies[i].Shadow {
			readings[i].Passed = min(passed, room(i))
		}
		if r.UpTo || r.Run > 0 && r.Policies[i].Shadow {
			times = readings[i].Passed
		}
		if n == 0 || readings[i].RetryAt > 0 { // of a shadow
			continue
		}
		if w == nil {
			w = make([]int64, a.Words())
		}
		v := a.View(w, now)
		w = a.Take(slices.Clone(w), &v, n*times)
		v = a.View(w, now)
		s.mu.cells[c] = w
		readings[i].Used, readings[i].ResetAt, readings[i].Delay = a.Shown(&v), a.ResetAt(&v), a.Delay(&v, 0)
		if readings[i].Passed < r.Run && !a.Fits(&v, n) {
			readings[i].RetryAt = a.RetryAt(w, &v, n)
		}
		s.mu.until[c] = max(s.mu.until[c], a.ResetAt(&v)+1_000_000)
	}
}

func cellOf(g *backend.Group, i int) cell {
	p := &g.Policies[i]
	return cell{g.Key, g.Sub, p.Name, p.Shadow, p.Algorithm.Identity()}
}

func (s *reference) expiries() map[string]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := map[string]time.Duration{}
	for c := range s.mu.cells {
		left[fmt.Sprintf("hg{%s}%s:%s:%v", c.key, c.sub, c.policy, c.identity)] = time.Duration(s.mu.until[c]-s.now()) * time.Microsecond
	}
	return left
}

func (s *reference) corrupt(key string, policies []backend.Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range policies {
		s.mu.cells[cell{key, "", p.Name, p.Shadow, p.Algorithm.Identity()}] = nil
	}
}

// onVirtualTime returns a reference with every hook.
func onVirtualTime() (*reference, Subject) {
	var now atomic.Int64
	s := newReference(now.Load)
	return s, Subject{
		Store: s,

		SetNow:    now.Store,
		Expiries:  s.expiries,
		Corrupt:   s.corrupt,
		LoseReply: func() { s.lose.Store(true) },
		Refuse:    func() { s.gone.Store(true) },
	}
}

func TestReference(t *testing.T) {
	redistest.Plain(t)
	Run(t, Harness{New: func(*testing.T) Subject {
		_, subject := onVirtualTime()
		return subject
	}})
}

// On the real clock, and without any hook, what can still be asked passes.
func TestReferenceOnRealTime(t *testing.T) {
	Run(t, Harness{New: func(*testing.T) Subject {
		return Subject{Store: newReference(func() int64 { return time.Now().UnixMicro() })}
	}})
}
