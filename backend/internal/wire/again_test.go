package wire

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// twice is a hook that sends a pipeline again, as one that retries does.
type twice struct{}

func (twice) DialHook(n redis.DialHook) redis.DialHook          { return n }
func (twice) ProcessHook(n redis.ProcessHook) redis.ProcessHook { return n }
func (twice) ProcessPipelineHook(n redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		_ = n(ctx, cmds)
		return n(ctx, cmds)
	}
}

// TestSentTwice: who stands in a pipeline that is written again is told
// "perhaps", and not what nobody asked.
func TestSentTwice(t *testing.T) {
	client := redistest.Start(t).Client(t)
	client.AddHook(twice{})
	s := Alone(client, &layer.Shared{}, time.Second)
	g := &backend.Group{Policies: []backend.Policy{{Name: "f", Algorithm: algo.FixedWindow(algo.PerDay(1))}}, Cost: 1}
	var tr Trip
	var takes []*Take
	for _, k := range []string{"a", "b"} {
		x, take := tr.Add(), NewTake()
		take.Ask(g)
		x.Op, x.Key, x.Tag, x.Policies, x.Takes = backend.Take, k, k, g.Policies, []*Take{take}
		takes = append(takes, take)
	}
	tr.Fly(&Flight{Server: s, Ways: s, Begin: Now(), Deadline: Now() + time.Second, Expired: func() {}})
	for _, take := range takes {
		<-take.Answered
		var d backend.Decision
		err := take.Decide(backend.Take, g, &d)
		require.ErrorIs(t, err, backend.ErrPerhapsCounted, "%+v", d)
	}
}
