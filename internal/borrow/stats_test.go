//go:build go1.25

package borrow

import (
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestAnsweredNeverFalls: metrics report the answered Borrows as a counter, which may not
// fall while others are lost.
func TestAnsweredNeverFalls(t *testing.T) {
	p := newProcess(memory.New(nil), algo.FixedWindow(algo.PerDay(1000)))
	defer p.shared.Close()
	h := &home{term: length, store: p.Store}
	h.busy.tryLock() // or the timer would tend it
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 200_000 {
			(&pending{home: h}).answered(&backend.Decision{}, backend.ErrPerhapsCounted)
		}
	}()
	for most := int64(0); ; {
		s := p.Stats()
		require.GreaterOrEqual(t, s.Borrows-s.Lost, most)
		most = s.Borrows - s.Lost
		select {
		case <-done:
			require.EqualValues(t, 200_000, p.Stats().Lost)
			return
		default:
		}
	}
}
