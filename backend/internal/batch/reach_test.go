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

// linked returns a server that is known to be so far away since a time, and the time at
// which the next call's budget ends.
func linked(c Client, trip, since time.Duration) (s *Server, ends func() time.Duration) {
	time.Sleep(time.Until(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))) // after client.Epoch
	s = NewServer(c, "node", Settings{Budget: 100 * ms, Shared: &layer.Shared{}})
	written := now()
	time.Sleep(trip)
	s.link.answered(written)
	time.Sleep(since)
	last := now() + 95*ms
	return s, func() time.Duration { return last }
}

// TestFarLinkIsMeasured: over a link that was longer than the budget, a PING shows how long it is
// by now. The call waits for what that shows, and is sent or refused by it.
func TestFarLinkIsMeasured(t *testing.T) {
	for _, by := range []time.Duration{10 * ms, 60 * ms, 200 * ms} {
		synctest.Test(t, func(t *testing.T) {
			s, ends := linked(near(by), 200*ms, time.Second/2)
			begin, held := now(), []error(nil)
			err := s.reach(ends, func(why error) { held = append(held, why) })
			require.ErrorContains(t, held[0], "a round trip takes 200ms")
			if by < 95*ms/2 {
				require.NoError(t, err)
				require.Equal(t, by, now()-begin)
			} else {
				require.ErrorAs(t, err, new(withdrawal))
				require.Equal(t, 95*ms, now()-begin, "no refusal is an answer at once")
			}
			time.Sleep(time.Second) // the PING ends
		})
	}
}

// TestKnownLinkIsNotMeasured: a call that has too little left for a round trip sends
// nothing, since scripts show how long the link is. What is known for more than a second is
// measured again.
func TestKnownLinkIsNotMeasured(t *testing.T) {
	for since, pings := range map[time.Duration]int64{time.Second / 2: 0, 2 * time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			server := &counted{near: near(60 * ms)}
			s, ends := linked(server, 60*ms, since)
			time.Sleep(50 * ms) // of the budget
			begin := now()
			err := s.reach(ends, func(error) {})
			require.ErrorAs(t, err, new(withdrawal))
			require.Equal(t, 45*ms, now()-begin)
			require.Equal(t, pings, server.commands.Load(), "after %v", since)
			time.Sleep(time.Second) // the PING ends
		})
	}
}

// TestRefusedPingIsNotRepeated: a PING that fails at once is not sent again by the same call.
func TestRefusedPingIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &counted{near: near(0), err: errors.New("refused")}
		s, ends := linked(server, 200*ms, time.Second/2)
		require.Error(t, s.reach(ends, func(error) {}))
		require.EqualValues(t, 1, server.commands.Load())
	})
}

// TestFarServerIsAvoided: a server that no call reaches shows that other ones are to be asked. A
// call whose own time is too short shows nothing of its server.
func TestFarServerIsAvoided(t *testing.T) {
	for trip, excused := range map[time.Duration]bool{60 * ms: true, 200 * ms: false} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := linked(near(trip), trip, 0)
			err := s.tooFar(50 * ms)
			require.ErrorAs(t, err, new(withdrawal))
			require.Equal(t, excused, errors.Is(err, layer.ErrExcused), "a link of %v", trip)
		})
	}
}

// counted counts its commands.
type counted struct {
	near
	commands atomic.Int64
	err      error
}

func (c *counted) Process(ctx context.Context, cmd redis.Cmder) error {
	c.commands.Add(1)
	if c.err != nil {
		return c.err
	}
	return c.near.Process(ctx, cmd)
}

// mute is a client of a server that does not answer.
type mute struct{ commands atomic.Int64 }

func (m *mute) Process(ctx context.Context, cmd redis.Cmder) error {
	m.commands.Add(1)
	_ = near(0).Process(ctx, cmd)
	ends, _ := ctx.Deadline()
	time.Sleep(time.Until(ends))
	return os.ErrDeadlineExceeded
}

// TestSlowAnswerIsNamed: the error of a command without an answer names its time.
func TestSlowAnswerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))) // after epoch
		s := NewServer(&mute{}, "node", Settings{Budget: 100 * ms, Shared: &layer.Shared{}})
		err := s.Send(250*ms, "slots", func(ctx context.Context, slots any) redis.Cmder {
			return redis.NewSliceCmd(ctx, "cluster", slots)
		})
		require.EqualError(t, err, "no answer within 250ms")
	})
}
