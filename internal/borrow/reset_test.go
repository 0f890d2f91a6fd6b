//go:build go1.25

package borrow

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestResetBesideABorrow: units of a Borrow that is under way while its key is reset are not
// used, whichever the store runs first. Then they are not lent any more.
func TestResetBesideABorrow(t *testing.T) {
	for name, after := range map[string]time.Duration{"the Borrow runs first": length / 8, "the Reset runs first": length / 24} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, p *process) {
				h := p.warm(t)
				require.True(t, h.busy.tryLock())
				p.next.trip.Store(int64(length / 6))
				go h.renew()
				time.Sleep(after)
				ask(t, p.Store, backend.Reset, p.list, 0)
				time.Sleep(length / 6) // the Borrow is answered
				if d := p.lentNow(t); after < length/12 {
					require.Positive(t, d, "it has lent")
				}
				_, ok := h.take(1)
				require.False(t, ok)
				time.Sleep(length / 4)
				require.Zero(t, p.lentNow(t))
				require.Zero(t, p.used(t), "what was lent is settled with 0")
				p.warm(t)
			})
		})
	}
}

// lentNow returns how many units the store has lent.
func (p *process) lentNow(t *testing.T) int64 {
	return ask(t, p.next.Store, backend.Peek, p.list, 1).Lent
}

// TestResetByAnotherLimiter: a Reset by any limiter or list of the process ends what is held
// of the key, also by one that does not borrow.
func TestResetByAnotherLimiter(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		other := New(p.next, p.shared, nil)
		for _, term := range []time.Duration{length, 0} {
			h := p.warm(t)
			r := backend.Request{Op: backend.Reset, Group: backend.Group{Key: "key", Policies: p.list, Borrow: term}}
			_, err := layer.Ask(t.Context(), other, r)
			require.NoError(t, err)
			_, ok := h.take(1)
			require.False(t, ok)
		}
		require.Len(t, p.stores.list(), 1)
		time.Sleep(10 * length)
		require.Empty(t, p.stores.list(), "a limiter without homes leaves nothing behind")
	})
}
