package shard_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/stretchr/testify/require"
)

// TestTwinsOnAServer: through the wrappers a key that is not spread is still
// answered as the plain Go rendering answers it, in every field.
func TestTwinsOnAServer(t *testing.T) {
	redistest.Plain(t)
	s := trace.New(redistest.Seed(t))
	client := clock.Client{Processor: redistest.Start(t).Client(t), Now: func() time.Time { return time.UnixMicro(s.Now()) }}
	wrapper := wrappers(standalone.New(client, &standalone.Options{Budget: longBudget}))
	model := trace.NewModel(s.Now)
	for i := range redistest.Steps(5_000, 30_000) {
		r := s.Next()
		want, got := trace.Ask(context.Background(), model, r), trace.Ask(context.Background(), wrapper, r)
		require.NoError(t, trace.Same(want, got), "step %d at %d: %v %+v", i, s.Now(), r.Op, r.Group)
	}
}

// TestRaces: four processes of 64 callers at one key that is not spread, as on
// the bare store.
func TestRaces(t *testing.T) {
	redistest.Plain(t)
	faulttest.Races(t, func() backend.Store {
		return wrappers(open(strings.Split(os.Getenv("ADDRS"), ","), &cluster.Options{Budget: longBudget}))
	}, func() string { return "ADDRS=" + strings.Join(redistest.StartCluster(t).Addrs(), ",") })
}
