// Package trace drives stores through the same random steps and compares
// every field of every answer. It holds the two renderings of the algorithms,
// and all stores, equal.
package trace

import (
	"context"
	"sync"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// Model is the Go rendering of the algorithms as plainly as it can be run: a map,
// nothing that expires, one lock. Its answer is what a store ought to answer.
// It is safe for concurrent use.
type Model struct {
	mu struct {
		sync.Mutex
		words  map[state][]int64
		closed bool
	}
	now func() int64
}

// state names the words that one policy keeps of one key, by all that the
// contract counts apart.
type state struct {
	key, sub, policy string
	identity         algo.Identity
}

// NewModel returns an empty model on a clock of microseconds.
func NewModel(now func() int64) *Model {
	m := &Model{now: now}
	m.mu.words = map[state][]int64{}
	return m
}

// Check accepts what any store could carry.
func (m *Model) Check(policies []backend.Policy) error { return backend.CheckPolicies(policies) }

// Capabilities returns what the model can do.
func (m *Model) Capabilities() backend.Capabilities { return backend.Basic }

// Close makes every later request ErrClosed, so that the model passes for a store
// in tests of the layers over it.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.closed = true
	return nil
}

// Do decides one request. It looks at all policies before it charges the first,
// since a take is charged to all or to none.
func (m *Model) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return backend.ErrClosed
	}
	if err := r.Check(ctx, backend.Basic); err != nil {
		return err
	}
	now := m.now()
	views, fits := m.look(r, now)
	readings := make([]backend.Reading, len(views))
	for i := range views {
		a, id, v := &r.Policies[i].Algorithm, name(r, i), &views[i]
		if n := r.CostOf(i); !a.Fits(v, n) && r.Op != backend.Reset {
			readings[i].RetryAt = a.RetryAt(m.mu.words[id], v, n)
		}
		if fits && r.Op == backend.Take {
			m.mu.words[id] = a.Take(m.mu.words[id], v, r.CostOf(i))
		}
		readings[i].At, readings[i].Used, readings[i].ResetAt = v.At, v.Used, a.ResetAt(v)
	}
	r.Decide(r.Op, now, readings, d)
	return nil
}

// look reads every policy's words, and forgets them first for a reset. A key that
// nobody used has words of zero, as in the script.
func (m *Model) look(r *backend.Request, now int64) (views []algo.View, fits bool) {
	fits = true
	for i := range r.Policies {
		a, id := &r.Policies[i].Algorithm, name(r, i)
		if m.mu.words[id] == nil || r.Op == backend.Reset {
			m.mu.words[id] = make([]int64, a.Words())
		}
		v := a.View(m.mu.words[id], now)
		fits = fits && a.Fits(&v, r.CostOf(i))
		views = append(views, v)
	}
	return views, fits
}

func name(r *backend.Request, i int) state {
	p := &r.Policies[i]
	return state{r.Key, r.Sub, p.Name, p.Algorithm.Identity()}
}
