package breaker_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

func nobody(t *testing.T) *standalone.Store {
	s, err := standalone.Open("redis://127.0.0.1:1", nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// fails opens the circuit of a node.
func fails(t *testing.T, h *layer.Shared, node string) {
	for range 5 {
		leave, err := h.Enter(node)
		require.NoError(t, err)
		leave(layer.ErrFailed)
	}
}

// TestDroppedLimitersLeaveNothing: circuits live as long as their store does,
// an observer as long as a limiter that it was given to.
func TestDroppedLimitersLeaveNothing(t *testing.T) {
	s := nobody(t)
	var freed atomic.Int64
	const n = 5000
	func() {
		for range n {
			o := &changes{}
			runtime.AddCleanup(o, func(int) { freed.Add(1) }, 0)
			_, err := headgate.New(s, []headgate.Policy{policy}, &headgate.Options{Observer: o.observe})
			require.NoError(t, err)
		}
	}()
	kept := &changes{}
	l, err := headgate.New(s, []headgate.Policy{policy}, &headgate.Options{Observer: kept.observe})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		runtime.GC()
		return freed.Load() == n && breaker.Watchers(s) == 1
	}, 10*time.Second, 10*time.Millisecond)
	fails(t, s.Shared(), "a:1")
	require.Eventually(t, func() bool { return len(kept.list()) == 1 }, 10*time.Second, time.Millisecond)
	runtime.KeepAlive(l)
}

// TestEachObserverIsToldOnce of a change, however many limiters are on the store.
func TestEachObserverIsToldOnce(t *testing.T) {
	s := nobody(t)
	var ls []*headgate.Limiter
	var all []*changes
	for range 100 {
		o := &changes{}
		l, err := headgate.New(s, []headgate.Policy{policy}, &headgate.Options{Observer: o.observe})
		require.NoError(t, err)
		with, err := l.With(policy)
		require.NoError(t, err)
		all, ls = append(all, o), append(ls, l, with)
	}
	fails(t, s.Shared(), "a:1")
	for _, o := range all {
		require.Eventually(t, func() bool { return len(o.list()) > 0 }, 10*time.Second, time.Millisecond)
	}
	fails(t, s.Shared(), "b:1")
	for _, o := range all {
		require.Eventually(t, func() bool { return len(o.list()) > 1 }, 10*time.Second, time.Millisecond)
		require.Equal(t, []string{"closed to open", "closed to open"}, o.list())
	}
	runtime.KeepAlive(ls)
}

// TestANodeThatLeaves takes its circuit along, and observers are told. What is
// still under way to it changes nothing.
func TestANodeThatLeaves(t *testing.T) {
	s, seen := nobody(t), &changes{}
	l, err := headgate.New(s, []headgate.Policy{policy}, &headgate.Options{Observer: seen.observe})
	require.NoError(t, err)
	var late []func(error)
	for range 5 {
		leave, err := s.Shared().Enter("a:1")
		require.NoError(t, err)
		late = append(late, leave)
	}
	fails(t, s.Shared(), "b:1")
	for _, node := range []string{"a:1", "b:1", "never asked"} {
		s.Shared().Gone(node)
	}
	require.Empty(t, l.Stats().Circuits)
	for _, leave := range late {
		leave(layer.ErrFailed)
	}
	require.Empty(t, l.Stats().Circuits)
	fails(t, s.Shared(), "a:1") // it is back, and has a circuit of its own
	require.Equal(t, map[string]string{"a:1": "open"}, l.Stats().Circuits)
	want := fmt.Sprint([]string{"closed to open", "closed to gone", "open to gone", "closed to open"})
	require.Eventually(t, func() bool { return fmt.Sprint(seen.list()) == want }, 10*time.Second, time.Millisecond)
	runtime.KeepAlive(l)
}
