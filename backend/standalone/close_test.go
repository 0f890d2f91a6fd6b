package standalone_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestCloseOpensNoCircuit: calls that are in flight when the store is closed are no failure of
// the server.
func TestCloseOpensNoCircuit(t *testing.T) {
	relay := redistest.NewRelay(t, redistest.Start(t).Addr(), 20*time.Millisecond)
	store, err := standalone.Open("redis://"+relay.Addr(), &standalone.Options{Budget: 10 * time.Second, DisableBatching: true})
	require.NoError(t, err)
	var changes atomic.Int64
	l, err := headgate.New(store, []headgate.Policy{wide}, &headgate.Options{Observer: func(e headgate.Event) {
		if e.Type == headgate.EventCircuit {
			changes.Add(1)
		}
	}})
	require.NoError(t, err)
	wait := faulttest.Go(64, func(i int) {
		for err := error(nil); !errors.Is(err, headgate.ErrClosed); {
			_, err = l.Allow(context.Background(), string(rune('a'+i)))
		}
	})
	time.Sleep(700 * time.Millisecond)
	require.Zero(t, changes.Load())
	require.NoError(t, store.Close())
	wait()
	time.Sleep(100 * time.Millisecond) // events come later
	require.Zero(t, changes.Load(), l.Stats().Circuits)
}
