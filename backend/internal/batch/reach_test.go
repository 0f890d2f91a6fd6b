//go:build go1.25

package batch

import (
	"context"
	"encoding"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// near is a client of a server that answers within a time.
type near time.Duration

func (n near) Process(_ context.Context, cmd redis.Cmder) error {
	for _, a := range cmd.Args() {
		if m, ok := a.(encoding.BinaryMarshaler); ok {
			_, _ = m.MarshalBinary() // it is written
		}
	}
	time.Sleep(time.Duration(n))
	return nil
}

// TestOldLinkIsMeasured: a caller is refused for the length of its link as it was within the
// last second. After that a PING shows what it is by now.
func TestOldLinkIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))) // after epoch
		for _, since := range []time.Duration{time.Second / 2, 2 * time.Second} {
			s := NewServer(near(10*ms), "node", Settings{Budget: 100 * ms, Shared: &layer.Shared{}})
			written := now()
			time.Sleep(200 * ms)
			s.link.Add(written, now())
			time.Sleep(since)
			begin := now()
			err := s.reach(begin + 95*ms)
			if since < time.Second {
				require.Error(t, err)
				require.Zero(t, now()-begin)
			} else {
				require.NoError(t, err)
				require.Equal(t, 10*ms, now()-begin)
			}
			synctest.Wait()
			time.Sleep(time.Second) // the PING ends
		}
	})
}

// TestKnownLinkIsNotMeasured: a call that has too little left for a round trip sends
// nothing, since scripts show how long the link is. Over a link that is longer than the
// budget no script is sent, so a PING shows it.
func TestKnownLinkIsNotMeasured(t *testing.T) {
	for trip, pings := range map[time.Duration]int64{60 * ms: 0, 200 * ms: 1} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))) // after epoch
			server := &counted{near: near(trip)}
			s := NewServer(server, "node", Settings{Budget: 100 * ms, Shared: &layer.Shared{}})
			s.link.Add(now()-trip, now())
			err := s.tooFar(50 * ms)
			require.ErrorAs(t, err, new(withdrawal))
			// If the call's time is too short, that shows nothing of the server.
			require.Equal(t, trip < 100*ms, errors.Is(err, layer.ErrExcused), "a link of %v", trip)
			synctest.Wait()
			require.Equal(t, pings, server.commands.Load(), "a link of %v", trip)
			time.Sleep(time.Second) // the PING ends
		})
	}
}

// counted counts its commands.
type counted struct {
	near
	commands atomic.Int64
}

func (c *counted) Process(ctx context.Context, cmd redis.Cmder) error {
	c.commands.Add(1)
	return c.near.Process(ctx, cmd)
}

// mute is a client of a server that does not answer.
type mute struct{}

func (mute) Process(ctx context.Context, cmd redis.Cmder) error {
	_ = near(0).Process(ctx, cmd)
	ends, _ := ctx.Deadline()
	time.Sleep(time.Until(ends))
	return os.ErrDeadlineExceeded
}

// TestSlowAnswerIsNamed: the error of a command without an answer names its time.
func TestSlowAnswerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))) // after epoch
		s := NewServer(mute{}, "node", Settings{Budget: 100 * ms, Shared: &layer.Shared{}})
		err := s.Send(250*ms, "slots", func(ctx context.Context, slots any) redis.Cmder {
			return redis.NewSliceCmd(ctx, "cluster", slots)
		})
		require.EqualError(t, err, "no answer within 250ms")
	})
}
