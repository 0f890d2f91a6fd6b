//go:build go1.25

package borrow

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestListsOfAKey: lists that decide alike have one home, whatever they do on failure. There
// are few homes of a key, and each of them ends with a Reset, and leaves when the key rests.
func TestListsOfAKey(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		list := func(change func(*backend.Policy)) []backend.Policy {
			other := []backend.Policy{p.list[0]}
			change(&other[0])
			return other
		}
		term := length
		call := func(list []backend.Policy) backend.Decision {
			d, err := layer.Ask(context.Background(), p.Store, backend.Request{
				Op: backend.Take, Group: backend.Group{Key: "key", Policies: list, Borrow: term, Cost: 1},
			})
			require.NoError(t, err)
			return d
		}
		h := p.warm(t)
		require.Equal(t, backend.FromLoan, call(list(func(q *backend.Policy) { q.OnFailure = backend.FailOpen })).Source)
		require.Equal(t, []*home{h}, p.homes.all())
		for i, change := range []func(*backend.Policy){
			func(q *backend.Policy) { q.Name = "q" },
			func(q *backend.Policy) { q.Algorithm = q.Algorithm.WithMax(999) },
			func(q *backend.Policy) { q.Shadow = true },
			func(*backend.Policy) { term = 2 * length },
		} {
			for range sure {
				call(list(change))
			}
			require.Len(t, p.homes.all(), i+2)
			require.EqualValues(t, i+2, p.homes.count.Load())
		}
		term = length
		all := make([][]backend.Policy, 20)
		for i := range all {
			all[i] = list(func(q *backend.Policy) { q.Name = fmt.Sprint("list-", i) })
			for range sure {
				call(all[i])
			}
		}
		require.Len(t, p.homes.all(), maxLists)
		p.homes.each("key", func(h *home) { require.Equal(t, "key", h.of.Key) })
		_, err := layer.Ask(context.Background(), p.Store, backend.Request{Op: backend.Reset, Group: backend.Group{Key: "key", Policies: all[0]}})
		require.NoError(t, err)
		for _, h := range p.homes.all() {
			require.LessOrEqual(t, h.end.Load(), int64(0))
		}
		for range 100 { // one list stays
			require.NotNil(t, p.homes.find(&backend.Group{Key: "key", Policies: p.list, Borrow: p.term}))
			p.call(t)
			time.Sleep(length / 10)
		}
		require.Equal(t, []*home{h}, p.homes.all())
		time.Sleep(10 * length)
		require.Empty(t, p.homes.all())
		require.Zero(t, p.homes.count.Load())
		for i := range p.homes.stripes {
			require.Empty(t, p.homes.stripes[i].mu.homes)
		}
	})
}
