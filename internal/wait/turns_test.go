package wait

import (
	"strconv"
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/stretchr/testify/require"
)

// enter has a queue's head want a turn.
func enter(g *Gate, queue string, weight float64) *place {
	p := &place{queue: queueName{key: queue}, weight: weight, turn: make(chan struct{}, 1), index: -1}
	g.enter(p)
	return p
}

// TestGateForgets: a gate that is never idle keeps no queue for long, and one that nobody
// uses is deleted.
func TestGateForgets(t *testing.T) {
	qs := NewQueues(true)
	g := qs.Gate("k", policy(algo.FixedWindow(algo.PerSecond(1))))
	require.Same(t, g, qs.Gate("k", policy(algo.FixedWindow(algo.PerSecond(1)))))
	holder := enter(g, "0", 1)
	for i := range 10_000 {
		next := enter(g, strconv.Itoa(1+i), 1)
		pass(g, holder)
		holder = next
	}
	require.LessOrEqual(t, len(g.mu.next), 100)
	g.leave(holder)
	require.Nil(t, g.mu.holder)
	require.Zero(t, g.mu.weights)
	g.Close()
	require.Len(t, qs.mu.gates, 1)
	g.Close()
	require.Empty(t, qs.mu.gates)
}

// pass serves the holder of the turn.
func pass(g *Gate, p *place) {
	<-p.turn
	g.served(p)
	g.leave(p)
}

// TestGateNewQueues: an endless series of new queues, as many as are served, does not keep
// a queue of many calls from its turns.
func TestGateNewQueues(t *testing.T) {
	g := NewQueues(true).Gate("k", policy(algo.FixedWindow(algo.PerSecond(1))))
	many, turns := enter(g, "many", 1), 0
	for i := range 10 {
		enter(g, strconv.Itoa(i), 1)
	}
	for i := range 1000 {
		if p := g.mu.holder; p == many {
			turns++
			<-p.turn
			g.served(p)
			many = enter(g, "many", 1)
			g.leave(p)
		} else {
			enter(g, strconv.Itoa(10+i), 1)
			pass(g, p)
		}
	}
	require.InDelta(t, 1000/11, turns, 30)
}
