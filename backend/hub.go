package backend

import (
	"errors"
	"sync"
	"sync/atomic"
)

// How a round trip to a node ended, as a circuit sees it: nil where the node
// decided, a denial too.
var (
	// ErrFailed: it did not answer in time, or said that it does not serve.
	ErrFailed = errors.New("headgate: node failed")
	// ErrExcused: no fault of the node. A redirect, a caller that withdrew, our
	// own pool full.
	ErrExcused = errors.New("headgate: not the node's fault")
)

// Guard stands at every round trip that a store makes to a node.
type Guard interface {
	// Enter asks whether the node may be asked now. An error says that it may
	// not; nothing was sent. Otherwise leave is called exactly once, with nil,
	// ErrFailed or ErrExcused.
	Enter(node string) (leave func(error), err error)
	// Gone tells that a node has left: its circuit may go too.
	Gone(node string)
}

// Hub holds what all limiters on one store share: one circuit a node, however
// many limiters ask it. The zero Hub is ready. Safe for concurrent use.
type Hub struct {
	guard atomic.Pointer[Guard]
	mu    struct {
		sync.Mutex
		shared map[any]any
	}
}

// Hubbed is implemented by stores that have a Hub; stations hand on next's.
type Hubbed interface{ Hub() *Hub }

// Sharing is implemented by stores in this process, which need no Hub but for
// what limiters on one store know of it together.
type Sharing interface{ Shared() *Hub }

// Share returns what stands under key, and makes it the first time.
func (h *Hub) Share(key any, fresh func() any) any {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v, ok := h.mu.shared[key]; ok {
		return v
	}
	if h.mu.shared == nil {
		h.mu.shared = map[any]any{}
	}
	v := fresh()
	h.mu.shared[key] = v
	return v
}

// SetGuard makes g the store's guard, in place of any earlier one.
func (h *Hub) SetGuard(g Guard) { h.guard.Store(&g) }

// Enter asks the store's guard; without one every node may be asked.
func (h *Hub) Enter(node string) (leave func(error), err error) {
	if g := h.guard.Load(); g != nil {
		return (*g).Enter(node)
	}
	return func(error) {}, nil
}

// Gone tells the store's guard that a node has left.
func (h *Hub) Gone(node string) {
	if g := h.guard.Load(); g != nil {
		(*g).Gone(node)
	}
}
