package memory_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// all takes one unit of each key in one request.
func (h *holder) all(keys ...string) (backend.Decision, error) {
	r := backend.Request{Op: backend.Take, Group: backend.Group{Key: keys[0], Policies: h.list, Cost: 1}}
	for _, key := range keys[1:] {
		r.And = append(r.And, backend.Group{Key: key, Policies: h.list, Cost: 1})
	}
	return layer.Ask(context.Background(), h.store, r)
}

// TestKeysOfOneStripe: a small store has one stripe, in which the record of one key moves
// others.
func TestKeysOfOneStripe(t *testing.T) {
	h := newHolder(40, algo.SlidingLog(algo.PerDay(100)))
	for i := range 10 {
		d, err := h.all("a", fmt.Sprint("b", i), "c")
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.EqualValues(t, i+1, h.used(t, "c"))
		require.EqualValues(t, 1, h.used(t, fmt.Sprint("b", i)))
	}
	require.EqualValues(t, 10, h.used(t, "a"))
	require.Equal(t, 12, h.store.Len())
}

// TestKeysOfTheOverflow: in a full store one key of a request may share the count of new
// keys, and two may not: each would find the room that the other takes.
func TestKeysOfTheOverflow(t *testing.T) {
	h := newHolder(1, algo.SlidingLog(algo.PerDay(5)))
	for range 2 {
		d, err := h.all("first", "new")
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	require.EqualValues(t, 2, h.used(t, "other"), "they share a count")
	_, err := h.all("first", "b", "c")
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "p0")
	require.EqualValues(t, 2, h.used(t, "first"))
	require.EqualValues(t, 2, h.used(t, "b"))
	for range 3 {
		d, err := h.all("new", "first")
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	d, err := h.all("another", "first")
	require.NoError(t, err)
	require.False(t, d.Allowed)
	require.Equal(t, 1, h.store.Len())
}

// TestKeysRoom: what a request reserved and did not use is free again.
func TestKeysRoom(t *testing.T) {
	h := newHolder(2, algo.SlidingLog(algo.PerDay(1)))
	_, err := h.all("a")
	require.NoError(t, err)
	for range 10 {
		d, err := h.all("a", "b")
		require.NoError(t, err)
		require.False(t, d.Allowed)
		_, err = h.all("c", "d", "e")
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.Equal(t, 1, h.store.Len())
	}
}
