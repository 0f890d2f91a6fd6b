package borrow

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// A call that finds too few units waits while another goroutine has the home's lock. If that one's
// Borrow brings units, the call takes from them. If that one is a call of the same cost that the
// store denies, the call is denied too, provided that the other was sent after it began. Else one of
// those that wait gets the lock and is sent. Near the limit it borrows for the others that wait.

// lock is a lock with an end that others can wait for.
type lock struct{ holder atomic.Pointer[holder] }

// holder is one goroutine's time with the lock.
type holder struct {
	over   chan struct{}     // closed at its end
	denied *backend.Decision // of a call that had the lock, or nil; read after the end
	units  int64             // the call's cost
}

func (l *lock) tryLock() bool {
	return !l.locked() && l.holder.CompareAndSwap(nil, &holder{over: make(chan struct{})})
}

func (l *lock) unlock() { close(l.holder.Swap(nil).over) }

func (l *lock) locked() bool { return l.holder.Load() != nil }

// waitPart is the part of a budget for which a call waits for others.
const waitPart = 4

// shares reports whether calls that find too few units wait for each other: while a Borrow may be
// sent, and while none may because the key has little room.
func (h *home) shares() bool {
	//mutant:near-limit-shares
	return int64(h.store.now()) >= h.try.Load() || h.need.Load() < never/2
}

// await waits, and reports whether the call is decided. If it is not, locked reports whether it has
// the lock; it is sent either way.
func (h *home) await(ctx context.Context, r *backend.Request, d *backend.Decision, n int64) (locked, decided bool) {
	h.waits.Add(n)
	defer h.waits.Add(-n)
	timer := time.NewTimer(h.store.shared.Budget / waitPart)
	defer timer.Stop()
	for i := 0; h.shares(); i++ {
		if h.busy.tryLock() {
			return true, false
		}
		other := h.busy.holder.Load()
		if other == nil {
			continue
		}
		select {
		case <-other.over:
		case <-timer.C:
			return false, false
		case <-ctx.Done():
			return false, false
		}
		//mutant:later-denial
		if i > 0 && other.denied != nil && other.units == n && r.Run == 0 && r.Each == nil {
			*d = *other.denied
			return false, true
		}
		if left, ok := h.take(n); ok {
			h.answer(&r.Group, d, n, left)
			return false, true
		}
	}
	return false, false
}

// denies keeps the denial of a call for those that wait. Its caller has the lock.
func (h *home) denies(r *backend.Request, d *backend.Decision, err error) {
	if err == nil && !d.Allowed && d.Source == backend.FromStore && r.Run == 0 {
		denied, l := *d, h.busy.holder.Load()
		l.denied, l.units = &denied, r.CostOf(0)
	}
}

// wait decides a call while another goroutine has the lock. Both the wait and the request are within
// the store's budget.
func (s *Store) wait(ctx context.Context, h *home, r *backend.Request, d *backend.Decision, n int64) error {
	begin, budget, send := s.now(), s.shared.Budget, s.ask
	locked, decided := h.await(ctx, r, d, n)
	if decided {
		return nil
	}
	if locked {
		send = s.borrow
	}
	//mutant:wait-within-budget
	bounded, cancel := layer.Within(ctx, budget, budget-(s.now()-begin))
	defer cancel()
	err := send(bounded, h, r, d)
	if ended := layer.BudgetEnded(bounded, err); ended != nil {
		return ended
	}
	return err
}
