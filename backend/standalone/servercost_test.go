package standalone_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var serverCost = flag.Bool("servercost", false, "measure the server's CPU a decision")

const (
	costKeys  = 100_000
	costSlice = 10_000 // keys that are called in one turn
	costTurns = 30
)

// plain is what any limiter on Redis has to do at the least: read the clock,
// read a value, write it with an expiry.
const plain = `local t = redis.call('TIME')
local v = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], t[1], 'PX', 60000)
return 1`

// TestServerCost measures the server's CPU a call, and holds it against the
// plain script's: by turns of a fraction of a second, since a machine that
// others share is a quarter faster or slower from one second to the next.
func TestServerCost(t *testing.T) {
	if !*serverCost {
		t.Skip("run by make server-cost")
	}
	server := redistest.Start(t)
	client := server.Client(t)
	sha := client.ScriptLoad(context.Background(), plain).Val()
	base := func(key string) error {
		return client.EvalSha(context.Background(), sha, []string{"plain:{" + key + "}"}).Err()
	}
	fmt.Printf("%-42s %8s %8s %8s   (the server's µs a call, of %d keys; the ratio to TIME + GET + SET PX is the median of %d turns)\n",
		"policies", "µs", "ratio", "at most", costKeys, costTurns)
	for _, row := range costRows() {
		require.NoError(t, client.FlushAll(context.Background()).Err())
		took, ratio := byTurns(t, server, row.take(client), base)
		fmt.Printf("%-42s %8.2f %8.2f %8.1f\n", row.name, took, ratio, row.most)
		if row.most > 0 && ratio > row.most {
			t.Errorf("%s costs the server %.2f times the plain script, at most %.1f", row.name, ratio, row.most)
		}
	}
}

// TestServerCostOfFirst holds a First of two parts of one policy against a take of one. Either the
// first part has room, or the second one passes.
func TestServerCostOfFirst(t *testing.T) {
	if !*serverCost {
		t.Skip("run by make server-cost")
	}
	server := redistest.Start(t)
	client := server.Client(t)
	s := standalone.New(client, &standalone.Options{Budget: 10 * time.Second, DisableBatching: true})
	list := costRows()[1].policies
	spent := []backend.Policy{list[0]}
	spent[0].Name, spent[0].Algorithm = "spent", algo.SlidingWindow(algo.PerHour(1))
	other := []backend.Policy{list[0]}
	other[0].Name = "other"
	send := func(groups ...backend.Group) error {
		_, err := layer.Ask(context.Background(), s, backend.Request{Op: backend.Take, Group: groups[0], And: groups[1:]})
		return err
	}
	group := func(key string, list []backend.Policy) backend.Group {
		return backend.Group{Key: key, Policies: list, Cost: 1}
	}
	second := func(key string) backend.Group {
		g := group("second:"+key, other)
		g.Else = true
		return g
	}
	base := func(key string) error { return send(group("alone:"+key, list)) }
	for _, row := range []struct {
		name string
		most float64
		each func(key string) error
	}{
		{"First, the first part has room", 1.4, func(key string) error { return send(group(key, list), second(key)) }},
		{"First, the second part passes", 2.2, func(key string) error { return send(group(key, spent), second(key)) }},
	} {
		for range 2 { // the spent keys are
			spread(t, 0, row.each)
		}
		took, ratio := byTurns(t, server, row.each, base)
		fmt.Printf("%-42s %8.2f %8.2f %8.1f   (the ratio to a take of one policy)\n", row.name, took, ratio, row.most)
		if ratio > row.most {
			t.Errorf("%s costs the server %.2f takes of one policy, at most %.1f", row.name, ratio, row.most)
		}
	}
}

// byTurns returns the medians of what a call costs the server, and of its
// ratio to one of base.
func byTurns(t *testing.T, server *redistest.Server, each, base func(key string) error) (took, ratio float64) {
	for from := 0; from < costKeys; from += costSlice { // every key exists, as in a service that has run for a while
		spread(t, from, each)
		spread(t, from, base)
	}
	var all, ratios []float64
	for turn := range costTurns {
		from := turn * costSlice % costKeys
		a, b := cost(t, server, from, each), cost(t, server, from, base)
		all, ratios = append(all, a), append(ratios, a/b)
	}
	slices.Sort(all)
	slices.Sort(ratios)
	return all[costTurns/2], ratios[costTurns/2]
}

func cost(t *testing.T, server *redistest.Server, from int, each func(key string) error) float64 {
	server.ResetStats(t)
	spread(t, from, each)
	return server.CommandStats(t)["evalsha"].PerCall
}

type costRow struct {
	name     string
	most     float64 // 0: published, no bound
	policies []backend.Policy
}

func costRows() []costRow {
	l := algo.PerHour(1 << 20)
	p := func(name string, a algo.Algorithm) backend.Policy {
		return backend.Policy{Name: name, Algorithm: a, OnFailure: backend.FailOpen}
	}
	fixed, sliding, token := p("f", algo.FixedWindow(l)), p("s", algo.SlidingWindow(l)), p("t", algo.TokenBucket(l, 1<<20))
	return []costRow{
		{"FixedWindow", 1.3, []backend.Policy{fixed}},
		{"SlidingWindow", 1.3, []backend.Policy{sliding}},
		{"TokenBucket", 1.3, []backend.Policy{token}},
		{"FixedWindow, SlidingWindow, TokenBucket", 1.9, []backend.Policy{fixed, sliding, token}},
		{"BucketedWindow(10)", 0, []backend.Policy{p("b", algo.BucketedWindow(l, 10))}},
		{"SlidingLog", 0, []backend.Policy{p("l", algo.SlidingLog(algo.PerHour(1_000_000)))}},
	}
}

func (r costRow) take(client *redis.Client) func(string) error {
	s := standalone.New(client, &standalone.Options{Budget: 10 * time.Second, DisableBatching: true}) // a call a script, as the plain one's
	return func(key string) error {
		_, err := layer.Ask(context.Background(), s, backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: r.policies, Cost: 1}})
		return err
	}
}

// spread calls each once for every key of a slice, from enough callers to keep
// the server busy.
func spread(t *testing.T, from int, each func(key string) error) {
	var next atomic.Int64
	faulttest.Go(16, func(int) {
		for i := next.Add(1); i <= costSlice; i = next.Add(1) {
			if err := each("user:" + strconv.FormatInt(int64(from)+i, 10)); err != nil {
				t.Error(err)
				return
			}
		}
	})()
}
