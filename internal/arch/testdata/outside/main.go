// The program of another module: a store of its own behind a breaker and over sub-keys. It calls
// each exported function of packages breaker, shard and lua.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/lua"
	"github.com/headgate-go/headgate/shard"
)

// own is a store of another author.
type own struct{ backend.Store }

func main() {
	ctx := context.Background()
	store := own{memory.New(nil)}
	guarded := breaker.New(store, &breaker.Options{Local: memory.New(nil), Instances: 2})
	spread := shard.New(guarded, store)
	list := []backend.Policy{{Name: "api", Algorithm: rule.FixedWindow(rule.PerMinute(100)), OnFailure: backend.FailOpen}}
	r := backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: list, Shards: 4, Cost: 1}}
	requests, answers := []backend.Request{r}, make([]backend.Answer, 1)
	var d backend.Decision
	fmt.Println(guarded.Check(list), spread.Check(list), spread.CheckShards(list, 4), spread.CheckRequest(ctx, &r), spread.Do(ctx, &r, &d), d.Allowed)
	spread.DoAll(ctx, requests, answers)
	r.Shards = 0
	fmt.Println(guarded.Do(ctx, &r, new(backend.Decision)), guarded.Fail(ctx, &r, new(backend.Decision), errors.New("no answer"), nil))
	guarded.DoAll(ctx, []backend.Request{r}, answers)
	fmt.Println(guarded.Capabilities(), spread.Capabilities(), guarded.Stats(), guarded.Stats().Batches == (breaker.Batches{}), spread.Stats(), guarded.Circuits(), breaker.RetryAfter)
	fmt.Println(spread.Shared() != nil, spread.Next() == backend.Store(guarded), shard.SubKeys("k", 4), shard.MaxShards)
	fmt.Println(guarded.Ping(ctx))
	fmt.Println(spread.Ping(ctx))
	fmt.Println(lua.Kinds(), len(lua.Script), lua.SHA)
	fmt.Println(spread.Close(), guarded.Close())
}
