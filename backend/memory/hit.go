package memory

import (
	"context"
	"hash/maphash"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// Hit decides the call that nearly all are: one policy of which the key has a
// record. It is decide with everything left out that such a call does not
// need; see backend.Quick.
func (s *Store) Hit(ctx context.Context, key string, p *backend.Policy, cost int64) (now int64, r backend.Reading, ok bool) {
	a := &p.Algorithm
	if cost < 1 || cost > a.Max() || key == "" || keepsMany(a.Kind()) || s.closed.Load() || ctx.Err() != nil {
		return 0, r, false
	}
	hash := maphash.String(s.seed, key)
	t, m := tag(hash, p), &s.stripes[hash>>stripeShift].mu
	now = s.before()
	m.Lock()
	at, ok := m.find(t, key, "", p)
	if !ok || m.calls%every == every-1 { // it is this call's turn to sweep
		m.Unlock()
		return 0, r, false
	}
	now = s.instant(m, now)
	m.calls++
	w := m.at(at)
	var v algo.View
	a.Look(&v, w[header:], now)
	if a.Fits(&v, cost) {
		a.Take(w[header:], &v, cost)
		r.ResetAt = a.ResetAt(&v)
		w[untilWord] = until(r.ResetAt, nameIn(w[untilWord]))
		m.Unlock()
		r.Used = v.Used
		return now, r, true
	}
	r.ResetAt = a.ResetAt(&v)
	m.stay(at, max(r.ResetAt, resetAt(w[untilWord]))) // see read
	m.Unlock()
	r.Used, r.RetryAt = v.Used, a.RetryAt(nil, &v, cost)
	return now, r, true
}
