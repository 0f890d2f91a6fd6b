package borrow

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// link is the fastest round trip of the last ten to twenty seconds. Others took longer
// because they waited for a processor, here or at the server, which lending relieves.
type link struct {
	window      atomic.Int64 // of which least is: the time divided by linkWindow
	least, last atomic.Int64 // in ns, in this window and in the one before; 0: none
}

const linkWindow = 10 * time.Second

// note notes a round trip. Round trips that end together at a change of windows may be
// noted in the other one.
func (l *link) note(at, took time.Duration) {
	//mutant:link-forgets
	if w, was := int64(at/linkWindow), l.window.Load(); w != was && l.window.CompareAndSwap(was, w) {
		least := l.least.Swap(0)
		if w > was+1 {
			least = 0
		}
		l.last.Store(least)
	}
	for least := l.least.Load(); least == 0 || int64(took) < least; least = l.least.Load() {
		if l.least.CompareAndSwap(least, max(int64(took), 1)) {
			return
		}
	}
}

// far reports whether ten round trips take longer than a term.
func (l *link) far(length time.Duration) bool {
	least, last := l.least.Load(), l.last.Load()
	if least == 0 || last > 0 && last < least {
		least = last
	}
	return 10*time.Duration(least) > length
}

// pass passes a request on, and notes how long the round trips took: each limiter whose keys
// it has does.
func (s *Store) pass(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	begin := s.now()
	err := s.next.Do(ctx, r, d)
	_, to := r.Alternative(0)
	//mutant:each-trip-is-noted
	if err != nil || d.Source != backend.FromStore || r.First() && (d.At >= to || !d.Allowed) { // perhaps a trip per alternative
		return err
	}
	took := s.now() - begin
	for i := range 1 + len(r.And) {
		if own, ok := layer.Own(r.GroupAt(i), s); ok {
			own.link.note(own.now(), took)
		}
	}
	return nil
}
