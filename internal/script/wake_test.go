package script

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/assert"
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

// wake lets all callers that have a token take it, until none has one.
func wake(t *testing.T, takes []*Take) (woken []int) {
	t.Helper()
	for who := answered(takes); len(who) > 0; who = answered(takes) {
		require.LessOrEqual(t, len(who), (len(takes)+chain-1)/chain, "one of a chain at a time")
		for _, i := range who {
			require.NoError(t, takes[i].Wait(ended, ended.Done(), backend.Take), "who has a token has an answer")
			woken = append(woken, i)
		}
	}
	return woken
}

// TestWhoLeavesBreaksNoChain: whoever of a chain leaves, all others are told,
// once each.
func TestWhoLeavesBreaksNoChain(t *testing.T) {
	for set := range 1 << chain {
		for _, written := range []bool{false, true} {
			g, takes := asked(3*chain - 1)
			if written {
				g.mark()
			}
			var stay []int
			for i, take := range takes {
				if set>>(i%chain)&1 == 0 {
					stay = append(stay, i)
					continue
				}
				err := take.Wait(ended, ended.Done(), backend.Take)
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, written, errors.Is(err, backend.ErrPerhapsCounted), err.Error())
			}
			g.deliver()
			require.ElementsMatch(t, stay, wake(t, takes), "%04b leave", set)
		}
	}
}

// TestChainsAreShort: who is slow to wake keeps three behind it waiting, not
// all of a flight.
func TestChainsAreShort(t *testing.T) {
	g, takes := asked(3*chain + 1)
	g.deliver()
	require.Equal(t, []int{0, chain, 2 * chain, 3 * chain}, answered(takes))
}

// TestWhoIsToldStays: a caller whose context ends as it is told has its answer,
// and wakes the next.
func TestWhoIsToldStays(t *testing.T) {
	for range 32 { // a select tosses a coin
		g, takes := asked(2)
		g.deliver()
		require.NoError(t, takes[0].Wait(ended, ended.Done(), backend.Take))
		require.Equal(t, []int{1}, answered(takes))
	}
}

// TestBusyCallersWakeNobody: nobody waits for a caller that waits for something
// else.
func TestBusyCallersWakeNobody(t *testing.T) {
	for busy := range chain - 1 {
		g, takes := asked(chain)
		takes[busy].Busy = true
		g.deliver()
		for i := range busy {
			require.NoError(t, takes[i].Wait(ended, ended.Done(), backend.Take))
		}
		require.Equal(t, []int{busy, busy + 1}, answered(takes))
	}
}

// TestALeftTakeIsNotSentAgain: one whose caller has left after it was sent is
// left out when the server says that it ran nothing, and is not told.
func TestALeftTakeIsNotSentAgain(t *testing.T) {
	g, takes := asked(2)
	require.True(t, g.mark())
	require.ErrorIs(t, takes[0].Wait(ended, ended.Done(), backend.Take), backend.ErrPerhapsCounted)
	g.unmark()
	require.True(t, g.mark())
	require.Equal(t, takes[1:], g.sent)
	g.deliver()
	require.Equal(t, []int{1}, answered(takes))
}

// TestANewQuestionHasNoChain: a take that is used again wakes nobody of its
// last flight.
func TestANewQuestionHasNoChain(t *testing.T) {
	g, takes := asked(2)
	g.deliver()
	require.Equal(t, []int{0, 1}, wake(t, takes))
	for _, take := range takes {
		take.Ask(&backend.Group{Cost: 1})
	}
	g.Takes = append(g.Takes, takes[0])
	g.deliver()
	require.Equal(t, []int{0}, wake(t, takes), "the other has not been told yet")
}

// TestAnExpiredTripTellsAll: each of its callers learns what is known of it,
// whoever has left.
func TestAnExpiredTripTellsAll(t *testing.T) {
	group := &backend.Group{Cost: 1}
	for leaver := range 2 * chain {
		var trip Trip
		g := trip.Add()
		_, takes := asked(2 * chain)
		g.Op, g.Takes = backend.Take, append(g.Takes, takes[:chain]...)
		g.mark()
		g.Takes = append(g.Takes, takes[chain:]...)
		require.Error(t, takes[leaver].Wait(ended, ended.Done(), g.Op))
		trip.start(nil, nil, Now(), Now()+time.Hour, func() {})
		trip.expire()
		woken := wake(t, takes)
		require.Len(t, woken, 2*chain-1)
		for _, i := range woken {
			want := backend.ErrPerhapsCounted
			if i >= chain {
				want = backend.ErrUnavailable
			}
			require.ErrorIs(t, takes[i].Decide(g.Op, group, nil), want)
		}
	}
}

// TestLeavingRacesWithTelling: callers that leave at any instant take nobody's
// answer with them.
func TestLeavingRacesWithTelling(t *testing.T) {
	for range 2000 {
		g, takes := asked(3 * chain)
		ctx, leave := context.WithCancel(context.Background())
		var running sync.WaitGroup
		for i, take := range takes {
			running.Add(1)
			go func() {
				defer running.Done()
				if i%3 == 0 { // a patient one
					assert.NoError(t, take.Wait(context.Background(), nil, backend.Take))
				} else if take.Wait(ctx, ctx.Done(), backend.Take) != nil {
					return
				}
				take.Ask(&backend.Group{Cost: 2}) // it is its caller's again
			}()
		}
		go leave()
		g.mark()
		g.deliver()
		all := make(chan struct{})
		go func() { running.Wait(); close(all) }()
		select {
		case <-all:
		case <-time.After(10 * time.Second):
			require.FailNow(t, "somebody was not told")
		}
		require.Empty(t, answered(takes), "nobody is told twice")
	}
}
