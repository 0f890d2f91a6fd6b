package denial

import (
	"context"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// DoAll decides each of the requests as Do would: from memory where it can, and the
// others in one batch of next. See layer.Batcher. None of them waits for a refresh.
func (s *Store) DoAll(ctx context.Context, rs []backend.Request, answers []layer.Answer) {
	var all [2]backend.Request // most callers have two
	left, at := all[:0], make([]int, 0, len(all))
	for i := range rs {
		done := s.cached(ctx, &rs[i], &answers[i].Decision)
		if done != nil {
			defer done()
		}
		if answers[i].Decision.Source != backend.FromDenyCache {
			left, at = append(left, rs[i]), append(at, i)
		}
	}
	if len(left) == 0 {
		return
	}
	now, generations := s.cache.Now(), make([]uint64, len(left))
	for i := range left {
		generations[i] = s.cache.At(left[i].Key).Generation()
	}
	some := make([]layer.Answer, len(left))
	layer.DoAll(ctx, s.next, left, some)
	for i := range left {
		a := &some[i]
		answers[at[i]] = *a
		if s.ttl > 0 && cacheable(&left[i]) {
			s.note(&left[i], &a.Decision, a.Err, s.cache.At(left[i].Key), now, generations[i])
		} else if left[i].Op == backend.Settle {
			s.cache.At(left[i].Key).Forget()
		}
	}
}

// cacheable reports whether the request is answered from memory.
func cacheable(r *backend.Request) bool {
	return (r.Op == backend.Take || r.Op == backend.Reserve) && len(r.And) == 0
}

// cached answers the request from memory where it can. A caller that is to refresh the
// denial calls done after its answer; else it is nil.
func (s *Store) cached(ctx context.Context, r *backend.Request, d *backend.Decision) (done func()) {
	if s.ttl == 0 || !cacheable(r) {
		return nil
	}
	now := s.cache.Now()
	switch e := s.cache.At(r.Key).find(&r.Group, now, s.ttl); {
	case e == nil || r.Check(ctx, s.next.Capabilities()) != nil || s.cache.Closed():
	case e.refreshes(now, s.ttl):
		return func() { close(e.refreshed) }
	default:
		s.answered.Add(1)
		e.answer(&r.Group, d, now)
	}
	return nil
}
