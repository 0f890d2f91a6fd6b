package standalone_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/stretchr/testify/require"
)

// TestTwins holds the two renderings of the algorithms equal: random
// policies, costs, changing limits and clock steps, Go against Lua.
func TestTwins(t *testing.T) {
	redistest.Plain(t)
	seed := redistest.Seed(t)
	for i := range uint64(traces) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			twins(t, seed+i, redistest.Steps(6_000, 1_000_000)/traces)
		})
	}
}

// traces are taken side by side, each on a server of its own: half of what one
// takes is waiting for the other process.
const traces = 2

func twins(t *testing.T, seed uint64, steps int) {
	s := trace.New(seed)
	server := redistest.Start(t)
	client := clock.Client{Processor: server.Client(t), Now: func() time.Time { return time.UnixMicro(s.Now()) }}
	lua := standalone.New(client, &standalone.Options{Budget: 10 * time.Second})
	model := trace.NewModel(s.Now)
	ctx := context.Background()
	for i := range steps {
		r := s.Next()
		want, got := trace.Ask(ctx, model, r), trace.Ask(ctx, lua, r)
		require.NoError(t, trace.Same(want, got), "step %d at %d: %v %+v", i, s.Now(), r.Op, r.Group)
	}
	server.NoImmortals(t)
}
