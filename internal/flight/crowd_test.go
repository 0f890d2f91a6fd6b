package flight_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/flight"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/headgate-go/headgate/internal/script"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestCrowds: where flights are full and follow each other quickly fewer are
// out, but more where the server is far away.
func TestCrowds(t *testing.T) {
	server := redistest.Start(t)
	near, far := queue(server.Client(t), 20*time.Second), queue(distant{server.Client(t), 2 * time.Millisecond}, 20*time.Second)
	for _, q := range []*flight.Queue{near, far} {
		var over atomic.Bool
		var crowd sync.WaitGroup
		for range 24 {
			crowd.Add(1)
			go func() {
				defer crowd.Done()
				for !over.Load() {
					_, _ = q.Ask(context.Background(), "k", 0, take("k"))
				}
			}()
		}
		if q == near {
			require.Eventually(t, func() bool { return q.Limit() < flight.Out }, 10*time.Second, time.Millisecond)
		} else {
			require.Eventually(t, func() bool { return q.Limit() == flight.Afar }, 10*time.Second, time.Millisecond)
			require.Never(t, func() bool { return q.Limit() != flight.Afar }, 200*time.Millisecond, time.Millisecond)
		}
		over.Store(true)
		crowd.Wait()
	}
}

// TestPairs: where flights carry several calls of each key to a server beside
// us, two are out at once: it has little to do for them.
func TestPairs(t *testing.T) {
	const beside, away, far = 100 * time.Microsecond, 500 * time.Microsecond, 5 * time.Millisecond
	server := redistest.Start(t)
	for _, test := range []struct {
		about         string
		calls, groups int
		took          time.Duration
		out           int
	}{
		{"many calls of one key", 100, 1, beside, 2},
		{"several calls of one key", 8, 1, beside, 2},
		{"several calls of each key", 100, 20, beside, 2},
		{"a call or two of each key", 100, 50, beside, 3},
		{"many calls of one key, over a link", 100, 1, away, 3},
		{"many calls of one key, far away", 100, 1, far, 3},
		{"a call or two", 2, 1, beside, flight.Out},
		{"a call or two, over a link", 2, 1, away, flight.Out},
		{"a call or two, far away", 2, 1, far, flight.Afar},
		{"several calls, far away", 8, 8, far, flight.Afar},
	} {
		q := queue(server.Client(t), time.Second)
		for range 100 {
			q.Note(test.calls, test.groups, test.took)
		}
		require.Equal(t, test.out, q.Limit(), test.about)
		for range 100 {
			q.Note(1, 1, beside)
		}
		require.Equal(t, flight.Out, q.Limit(), "%s, and then one at a time", test.about)
	}
}

// TestOthersKeepItBusy: where round trips take longer than their link and what
// they carry can explain, two are out, also of calls that fly alone.
func TestOthersKeepItBusy(t *testing.T) {
	const us = time.Microsecond
	server := redistest.Start(t)
	for _, test := range []struct {
		about         string
		link          time.Duration
		calls, groups int
		took          time.Duration
		out, then     int
	}{
		{"several calls of one key", 30 * us, 5, 1, 600 * us, 2, flight.Out},
		{"one call at a time", 30 * us, 1, 1, 600 * us, 2, flight.Out},
		{"several keys", 30 * us, 5, 5, 600 * us, 2, flight.Out},
		{"as many keys as take so long", 30 * us, 10, 10, 600 * us, 3, flight.Out},
		{"not much longer than the link", 30 * us, 4, 1, 220 * us, 3, flight.Out},
		{"over a link", 600 * us, 5, 1, 700 * us, 3, flight.Out},
		{"far away", 2000 * us, 5, 1, 3000 * us, flight.Afar, flight.Afar},
	} {
		q := queue(server.Client(t), time.Second)
		q.Note(1, 1, test.link)
		for range 100 {
			q.Note(test.calls, test.groups, test.took)
		}
		require.Equal(t, test.out, q.Limit(), test.about)
		for range 100 {
			q.Note(1, 1, test.link)
		}
		require.Equal(t, test.then, q.Limit(), "%s, and then at leisure", test.about)
	}
}

// TestAServerThatMovedAway is not taken for a busy one for long.
func TestAServerThatMovedAway(t *testing.T) {
	q := queue(redistest.Start(t).Client(t), time.Second)
	q.NoteAt(0, 5, 1, 30*time.Microsecond)
	for i := range 100 {
		q.NoteAt(flight.While/100*time.Duration(i+1), 5, 1, 2*time.Millisecond)
	}
	require.Equal(t, 2, q.Limit())
	q.NoteAt(flight.While+time.Second, 5, 1, 2*time.Millisecond)
	require.Equal(t, flight.Afar, q.Limit())
}

// TestABrokenTripIsNoLink: a connection that ends at once makes no far server
// near.
func TestABrokenTripIsNoLink(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
	defer client.Close()
	q := queue(client, 10*time.Second)
	proxy.Set(redistest.Delay(5 * time.Millisecond))
	_, err := q.Ask(context.Background(), "k", 0, take("k"))
	require.NoError(t, err)
	proxy.Set(redistest.ResetAfterRequest)
	_, err = q.Ask(context.Background(), "k", 0, take("k"))
	require.Error(t, err)
	proxy.Set(redistest.Delay(5 * time.Millisecond))
	for range 50 {
		_, err := q.Ask(context.Background(), "k", 0, take("k"))
		require.NoError(t, err)
		require.Equal(t, flight.Afar, q.Limit())
	}
}

// TestNoMoreThanConnections: a flight beyond those would wait for one.
func TestNoMoreThanConnections(t *testing.T) {
	server := redistest.Start(t)
	for _, size := range []int{1, 5, flight.Out + 1} {
		q := queue(server.Client(t, func(o *redis.Options) { o.PoolSize = size }), time.Second)
		require.Equal(t, min(size, flight.Out), q.Limit())
		q.Note(1, 1, 5*time.Millisecond)
		require.Equal(t, size, q.Limit(), "far away")
	}
}

// TestAFirstFlightIsNoCrowd: a few calls of one key that happen to leave
// together leave all places to those behind them.
func TestAFirstFlightIsNoCrowd(t *testing.T) {
	q := queue(redistest.Start(t).Client(t), time.Second)
	q.Note(8, 1, time.Microsecond)
	require.Equal(t, flight.Out, q.Limit())
}

// TestWhoIsAloneStaysSo: calls that are flights of their own are no crowd.
func TestWhoIsAloneStaysSo(t *testing.T) {
	set := script.Settings{Hub: &backend.Hub{}}
	q := flight.New(script.NewServer(redistest.Start(t).Client(t), "node", set), nil, time.Second, true)
	all := q.Limit()
	q.Note(100, 1, time.Microsecond)
	require.Equal(t, all, q.Limit())
}

// TestFlightsOfACrowdAreEven: each carries as many groups as waited when one
// landed, of late; who comes beyond that is on the next.
func TestFlightsOfACrowdAreEven(t *testing.T) {
	const even, more = 40, 10
	const beside = 100 * time.Microsecond
	q, g := gated(t, false)
	landed := fill(t, q, g)
	ended := make(chan error, even+more)
	ask := func(from, to int) {
		for i := from; i < to; i++ {
			go func() {
				k := fmt.Sprint("k", i)
				_, err := q.Ask(context.Background(), k, 0, take(k))
				ended <- err
			}()
		}
		waits(t, q, to)
	}
	ask(0, even)
	for range 100 {
		require.False(t, q.Note(1, 1, beside))
	}
	require.Equal(t, flight.Keys, q.Share(), "there is no crowd")
	for range 100 {
		q.Note(even, even, beside)
	}
	require.Equal(t, even, q.Share())
	ask(even, even+more)
	require.True(t, q.Note(even, even, beside))
	g.open()
	landed()
	allAnswered(t, ended)
	require.True(t, g.holds(flight.Out+2))
	require.False(t, g.holds(flight.Out+3))
}

// TestFewRideTogether: also where nobody waited, of late.
func TestFewRideTogether(t *testing.T) {
	q := queue(redistest.Start(t).Client(t), time.Second)
	for range 100 {
		require.False(t, q.Note(100, 50, 100*time.Microsecond))
	}
	require.Equal(t, flight.Few, q.Share())
}
