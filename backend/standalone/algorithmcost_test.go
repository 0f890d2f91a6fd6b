package standalone_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// algorithmTurns is odd, so that a median is one of them. Short turns follow each other
// closely on a machine that others share.
const (
	algorithmTurns = 21
	algorithmKeys  = 1000
)

// TestAlgorithmCost measures the column "server time" of docs/algorithms.md: what a
// call costs the server that passes, and one that is denied, as multiples of the plain
// script. The three take their turns, as in TestServerCost.
func TestAlgorithmCost(t *testing.T) {
	if !*serverCost {
		t.Skip("run by make server-cost")
	}
	server := redistest.Start(t)
	client := server.Client(t)
	store := standalone.New(client, &standalone.Options{Budget: 10 * time.Second, DisableBatching: true})
	sha := client.ScriptLoad(context.Background(), plain).Val()
	base := func(key string) error {
		return client.EvalSha(context.Background(), sha, []string{"plain:{" + key + "}"}).Err()
	}
	fmt.Printf("the server's time a call, as multiples of TIME + GET + SET PX; medians of %d turns of %d calls\n", algorithmTurns, algorithmKeys)
	for _, of := range algorithmsOf(1) {
		name, spent, roomy := of.Kind().String(), one(store, of), one(store, of.WithMax(1<<19))
		require.NoError(t, client.FlushAll(context.Background()).Err())
		for _, each := range []func(string) error{base, spent} {
			everyKey(t, each) // every key exists, and those of spent are spent
		}
		room := func(key string) error { return roomy("room:" + key) }
		everyKey(t, room)
		var passes, denied []float64
		for range algorithmTurns {
			b := everyCost(t, server, base)
			passes = append(passes, everyCost(t, server, room)/b)
			denied = append(denied, everyCost(t, server, spent)/b)
		}
		slices.Sort(passes)
		slices.Sort(denied)
		fmt.Printf("| `%s` | %.1f | %.1f |\n", name, passes[algorithmTurns/2], denied[algorithmTurns/2])
	}
}

// everyKey calls each once for every key.
func everyKey(t *testing.T, each func(key string) error) {
	faulttest.Go(16, func(c int) {
		for i := c; i < algorithmKeys; i += 16 {
			if err := each(fmt.Sprint("user:", i)); err != nil {
				t.Error(err)
				return
			}
		}
	})()
}

// everyCost returns what one of these calls costs the server, in µs.
func everyCost(t *testing.T, server *redistest.Server, each func(key string) error) float64 {
	server.ResetStats(t)
	everyKey(t, each)
	return server.CommandStats(t)["evalsha"].PerCall
}

// algorithmsOf returns one of each kind. A day is longer than the test.
func algorithmsOf(limit int64) []algo.Algorithm {
	l := algo.PerDay(limit)
	return []algo.Algorithm{
		algo.FixedWindow(l), algo.SlidingWindow(l), algo.BucketedWindow(l, 10), algo.SlidingLog(l), algo.CompactLog(l),
		algo.TokenBucket(l, limit), algo.LeakyQueue(l, limit, time.Millisecond), algo.Calendar(limit, algo.Month(1), time.UTC), algo.InFlight(limit),
	}
}

// one returns a function that asks for one unit, by a Reserve where the kind has slots.
func one(s backend.Store, a algo.Algorithm) func(key string) error {
	policies := []backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailOpen}}
	return func(key string) error {
		r := backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: policies, Cost: 1}}
		if a.Kind().Leased() {
			r = reserveOne(key, policies)
		}
		_, err := layer.Ask(context.Background(), s, r)
		return err
	}
}

// reserveOne is a Reserve of one unit, under an ID of its own.
func reserveOne(key string, policies []backend.Policy) backend.Request {
	r := backend.Request{Op: backend.Reserve}
	r.Key, r.Policies, r.Cost, r.Lease = key, policies, 1, &backend.Lease{Length: time.Hour}
	_, _ = rand.Read(r.Lease.ID[:])
	return r
}
