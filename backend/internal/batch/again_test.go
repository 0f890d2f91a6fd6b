package batch

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
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

// before is a hook that runs f before a script is written.
type before struct{ f func() }

func (b before) DialHook(n redis.DialHook) redis.DialHook { return n }

func (b before) ProcessHook(n redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			b.f()
		}
		return n(ctx, cmd)
	}
}

func (b before) ProcessPipelineHook(n redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		b.f()
		return n(ctx, cmds)
	}
}

var daily = []backend.Policy{{Name: "f", Algorithm: algo.FixedWindow(algo.PerDay(10))}}

// groupOf returns a group of one call for the operation.
func groupOf(key string, op backend.Op) (*group, *call) {
	r := &backend.Request{Op: op, Group: backend.Group{Key: key, Policies: daily, Cost: 1}}
	if op == backend.Borrow {
		r.Loan = &backend.Loan{ID: backend.LeaseID{1}, Seq: 1, Term: time.Second, Want: 5}
	}
	c := newCall(context.Background(), key, 0, r, time.Second)
	g := &c.own
	add(g, c)
	return g, c
}

func used(t *testing.T, c *call) int64 {
	t.Helper()
	require.NoError(t, c.wait(context.Background()))
	var d backend.Decision
	require.NoError(t, c.Decide(&backend.Request{Op: c.own.Op, Group: backend.Group{Policies: daily}}, nil, &d))
	return d.Used
}

// TestLeftBeforeWritten: a call whose caller leaves just before the command is
// written changes nothing, and harms no other: in one command, and as the first
// of a pipeline.
func TestLeftBeforeWritten(t *testing.T) {
	for _, op := range []backend.Op{backend.Take, backend.Reset, backend.Borrow} {
		for name, router := range map[string]func(*Server) Router{
			"one command": func(*Server) Router { return nil },
			"a pipeline":  func(s *Server) Router { return NoRouter{s} },
		} {
			t.Run(op.String()+"/"+name, func(t *testing.T) {
				client := redistest.Start(t).Client(t)
				var leaves func()
				client.AddHook(before{func() { leaves() }})
				s := Alone(client, &layer.Shared{}, time.Second)
				run := func(groups ...*group) { tripOf(NewQueue(s, router(s)), groups...).run(time.Second) }
				leaves = func() {}
				first, c := groupOf("a", backend.Take)
				run(first)
				require.EqualValues(t, 1, used(t, c))

				gone, left := groupOf("a", op)
				stays, other := groupOf("b", backend.Take)
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				leaves = func() { require.ErrorIs(t, left.wait(ctx), context.Canceled) }
				run(gone, stays)
				require.EqualValues(t, 1, used(t, other))
				leaves = func() {}
				look, c := groupOf("a", backend.Peek)
				run(look)
				require.EqualValues(t, 1, used(t, c))
			})
		}
	}
}

// TestSentTwice: calls of a pipeline that a hook writes again were perhaps
// counted.
func TestSentTwice(t *testing.T) {
	client := redistest.Start(t).Client(t)
	client.AddHook(twice{})
	s := Alone(client, &layer.Shared{}, time.Second)
	var groups []*group
	var sent []*call
	for _, k := range []string{"a", "b"} {
		g, c := groupOf(k, backend.Take)
		groups, sent = append(groups, g), append(sent, c)
	}
	tripOf(NewQueue(s, NoRouter{s}), groups...).run(time.Second)
	for _, c := range sent {
		<-c.answered
		var d backend.Decision
		err := c.Decide(&backend.Request{Op: backend.Take, Group: backend.Group{Policies: daily}}, nil, &d)
		require.ErrorIs(t, err, backend.ErrPerhapsCounted, "%+v", d)
	}
}

// TestLateNoScript: a NOSCRIPT that arrives after the load that it calls for makes no
// second one, and a SCRIPT FLUSH after that load does.
func TestLateNoScript(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	s := Alone(client, &layer.Shared{}, time.Second)
	for want := range int64(2) {
		require.NoError(t, client.ScriptFlush(t.Context()).Err())
		seen := s.loads.Load()
		require.NoError(t, s.load(seen))
		require.NoError(t, s.load(seen))
		require.Equal(t, want+1, server.CommandStats(t)["script|load"].Calls)
	}
}
