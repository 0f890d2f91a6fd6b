package script

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// ended is the context of a caller that leaves.
var ended = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// asked returns a group of n takes that wait.
func asked(n int) (*Group, []*Take) {
	g := &Group{Op: backend.Take}
	for range n {
		g.Takes = append(g.Takes, NewTake())
		g.Takes[len(g.Takes)-1].Ask(&backend.Group{Cost: 1})
	}
	return g, append([]*Take(nil), g.Takes...)
}

// answered says which takes have a token.
func answered(takes []*Take) (who []int) {
	for i, t := range takes {
		if len(t.Answered) > 0 {
			who = append(who, i)
		}
	}
	return who
}

// TestALeftTakeIsNotSentAgain: one whose caller has left after it was sent is
// left out when the server says that it ran nothing, and is not told.
func TestALeftTakeIsNotSentAgain(t *testing.T) {
	g, takes := asked(2)
	require.True(t, g.mark())
	require.ErrorIs(t, takes[0].Wait(ended, backend.Take), backend.ErrPerhapsCounted)
	g.unmark()
	require.True(t, g.mark())
	require.Equal(t, takes[1:], g.sent)
	g.deliver()
	require.Equal(t, []int{1}, answered(takes))
}
