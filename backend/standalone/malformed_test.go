package standalone_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// garbles replaces the reply of the first EVALSHA that has run.
type garbles struct {
	reply string
	done  *bool
}

func (garbles) DialHook(next redis.DialHook) redis.DialHook { return next }
func (garbles) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (g garbles) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if c, ok := cmd.(interface{ SetVal(string) }); ok && err == nil && !*g.done && strings.EqualFold(cmd.Name(), "evalsha") {
			*g.done = true
			c.SetVal(g.reply)
		}
		return err
	}
}

// TestMalformedIsNotSentAgain: a malformed reply that begins as one that asks for other
// boundaries sends nothing again: the charge is made once.
func TestMalformedIsNotSentAgain(t *testing.T) {
	server := redistest.Start(t)
	ctx, done := context.Background(), false
	p := []backend.Policy{{Name: "p", Algorithm: algo.Calendar(100, algo.Day(), time.UTC), OnFailure: backend.FailClosed}}
	client := server.Client(t)
	client.AddHook(garbles{"1760000000 5B and more", &done})
	s := standalone.New(client, patient)
	var d backend.Decision
	take := backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Cost: 1, Policies: p}}
	err := s.Do(ctx, &take, &d)
	require.True(t, done)
	time.Sleep(50 * time.Millisecond)
	peek := backend.Request{Op: backend.Peek, Group: backend.Group{Key: "k", Cost: 1, Policies: p}}
	var after backend.Decision
	require.NoError(t, s.Do(ctx, &peek, &after))
	require.ErrorIs(t, err, backend.ErrPerhapsCounted, "used %d", after.Used)
	require.EqualValues(t, 1, after.Used)
}
