//go:build go1.25

package batch

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestMissedDeadlinesMerge: while a server answers nothing in time, the pending calls leave in
// one batch at a time. Batches of a few calls would be work for a server that is behind already,
// and their callers have left when it is done.
func TestMissedDeadlinesMerge(t *testing.T) {
	unused := func() { // calls are made in the bubble, and are not used outside of it
		runtime.GC()
		runtime.GC()
	}
	unused()
	defer unused()
	synctest.Test(t, func(t *testing.T) {
		const callers, budgets = 64, 10
		server := &mute{}
		s, _ := linked(server, ms, 0)
		q := NewQueue(s, nil)
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range budgets {
					r := &backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: policies, Cost: 1}}
					_, err := q.Ask(context.Background(), "k", 1, r)
					require.Error(t, err)
				}
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		require.Less(t, server.commands.Load(), int64(4*budgets), "commands in ten budgets; 80 without")
	})
}
