//go:build go1.25

package headgate_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestAllLostIsNotSettled: an All whose reply was lost settles nothing that was never reserved.
func TestAllLostIsNotSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settles := 0
		s := inMemory(func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
			if r.Op == backend.Settle {
				settles++
			}
			if err := next.Do(ctx, r, d); err != nil || r.Op == backend.Settle {
				return err
			}
			return backend.ErrPerhapsCounted
		})
		a := perDay(t, s, headgate.FailClosed, "a", 10)
		d, err := headgate.All(context.Background(), a.Part("u"), a.Part("o"))
		require.NoError(t, err)
		require.False(t, d.Allowed)
		time.Sleep(5 * time.Second)
		require.Zero(t, settles)
	})
}

// TestAllStoreTime: the event of an All of one key has its time in the store.
func TestAllStoreTime(t *testing.T) {
	for n := 1; n <= 2; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var seen headgate.Event
			s := inMemory(func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
				time.Sleep(5 * time.Millisecond)
				return next.Do(ctx, r, d)
			})
			l, err := headgate.New(s, []headgate.Policy{daily("a", 10)}, &headgate.Options{Observer: func(e headgate.Event) { seen = e }})
			require.NoError(t, err)
			_, err = headgate.All(context.Background(), []headgate.Part{l.Part("k"), l.Part("l")}[:n]...)
			require.NoError(t, err)
			require.GreaterOrEqual(t, seen.StoreTime, 5*time.Millisecond)
		})
	}
}
