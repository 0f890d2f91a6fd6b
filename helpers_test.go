package headgate_test

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/layer"
)

// patient is for tests that are not about the budget, so that they hold on a busy machine.
var patient = &standalone.Options{Budget: 2 * time.Second}

// fake is a store over another one. What a test sets stands in place of the other's.
type fake struct {
	backend.Store
	do     doing                 // nil: the other's Do
	can    *backend.Capabilities // nil: the other's
	shared *layer.Shared         // what limiters share; nil: nothing, as on a store of another author
}

// doing is Do of a fake over next.
type doing func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error

// inMemory returns a fake that limiters share as they share a memory store.
func inMemory(do doing) *fake {
	s := memory.New(nil)
	return &fake{Store: s, do: do, shared: s.Shared()}
}

func (f *fake) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if f.do == nil {
		return f.Store.Do(ctx, r, d)
	}
	return f.do(ctx, f.Store, r, d)
}

func (f *fake) Capabilities() backend.Capabilities {
	if f.can == nil {
		return f.Store.Capabilities()
	}
	return *f.can
}

func (f *fake) Shared() *layer.Shared { return f.shared }

// oneKey returns a store over s that decides one key per request.
func oneKey(s backend.Store) *fake {
	can := s.Capabilities()
	can.Keys = 1
	return &fake{Store: s, can: &can}
}

// remote returns a store over s with a deny cache.
func remote(s backend.Store) *fake { return &fake{Store: s, shared: new(layer.Shared)} }

// lossy is a store that loses requests, or answers, of some operations.
type lossy struct {
	*fake
	before, after atomic.Uint32 // backend.Ops: of these the request is lost, or the answer
	delayed       atomic.Pointer[backend.Request]
}

func newLossy() *lossy { return lossyOf(memory.New(nil)) }

func lossyOf(s backend.Store) *lossy {
	l := &lossy{}
	l.fake = &fake{Store: s, do: l.decide}
	return l
}

func (s *lossy) lose(before, after backend.Ops) {
	s.before.Store(uint32(before))
	s.after.Store(uint32(after))
}

func (s *lossy) decide(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
	if backend.Ops(s.before.Load()).Has(r.Op) {
		return backend.ErrUnavailable
	}
	lost := backend.Ops(s.after.Load()).Has(r.Op)
	if lost && s.before.Load() == overtaken && r.Op == backend.Reserve {
		own := *r
		s.delayed.Store(&own)
		return backend.ErrPerhapsCounted
	}
	err := next.Do(ctx, r, d)
	if lost {
		*d = backend.Decision{}
		return backend.ErrPerhapsCounted
	}
	return err
}

// overtaken, as what is lost before, delays a Reserve until arrive.
const overtaken = 1 << 31

// arrive lets the store have a Reserve that was delayed.
func (s *lossy) arrive() (d backend.Decision, err error) {
	err = s.Store.Do(context.Background(), s.delayed.Load(), &d)
	return d, err
}

var (
	onReserve = backend.OpsOf(backend.Reserve)
	onSettle  = backend.OpsOf(backend.Settle)
	onExtend  = backend.OpsOf(backend.Extend)
	onAll     = ^backend.Ops(0)
)

// onceLossy returns a store that loses the answer to the first request of one operation.
func onceLossy(op backend.Op) *fake {
	var lost atomic.Bool
	return &fake{Store: memory.New(nil), do: func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		err := next.Do(ctx, r, d)
		if r.Op == op && lost.CompareAndSwap(false, true) {
			*d = backend.Decision{}
			return backend.ErrPerhapsCounted
		}
		return err
	}}
}

// downStore is a memory store that can be unreachable. It refuses wrong requests before
// that, as our stores do.
type downStore struct {
	*fake
	down   atomic.Bool
	before func(*backend.Request) // called first; nil: nothing is
}

func newDownStore() *downStore {
	s := &downStore{}
	s.fake = inMemory(func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		if s.before != nil {
			s.before(r)
		}
		if err := r.Check(ctx, next.Capabilities()); err != nil {
			return err
		}
		if s.down.Load() {
			return backend.ErrUnavailable
		}
		return next.Do(ctx, r, d)
	})
	return s
}
