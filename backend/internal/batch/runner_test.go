package batch

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/layer"
)

// Asked is a group as a test asks it: its takes hold their answers.
type Asked struct {
	Op       backend.Op
	Key      string
	Hash     string
	Policies []backend.Policy
	Lease    *backend.Lease
	Takes    []Answer
}

// Answer is a call with its answer.
type Answer struct {
	backend.Group
	Decision backend.Decision
	Err      error
}

// Alone returns a server with the defaults.
func Alone(c Client, shared *layer.Shared, budget time.Duration) *Server {
	return NewServer(c, "node", Settings{Prefix: names.DefaultPrefix, Shared: shared, Budget: budget})
}

func add(g *group, c *call) {
	g.calls, g.Calls = append(g.calls, c), append(g.Calls, &c.Call)
}

// Run decides the groups in one round trip. Its error is that of the round trip.
func (s *Server) Run(ctx context.Context, asked []*Asked) error {
	var groups []*group
	var all []*call
	for _, a := range asked {
		var g *group
		for i := range a.Takes {
			r := backend.Request{Op: a.Op, Group: a.Takes[i].Group}
			r.Key, r.Policies, r.Lease = a.Key, a.Policies, a.Lease
			c := newCall(ctx, names.Tag(a.Key, ""), 0, &r, s.Budget)
			if g == nil {
				g = &c.own
				groups = append(groups, g)
			}
			add(g, c)
			all = append(all, c)
		}
	}
	go tripOf(NewQueue(s, nil), groups...).run(s.Budget)
	var failure error
	for _, a := range asked {
		for i := range a.Takes {
			c, to := all[0], &a.Takes[i]
			all = all[1:]
			if to.Err = c.wait(ctx); to.Err == nil {
				to.Err = c.Decide(&backend.Request{Op: a.Op, Group: to.Group}, nil, &to.Decision)
			}
			var corrupt *backend.CorruptError
			var invalid *backend.InvalidError
			if to.Err != nil && !errors.As(to.Err, &corrupt) && !errors.As(to.Err, &invalid) {
				failure = to.Err
			}
		}
	}
	return failure
}

// tripOf returns a round trip of groups that begins now.
func tripOf(q *Queue, groups ...*group) *roundTrip {
	t := q.ended.Get().(*roundTrip)
	t.groups, t.first = groups, now()
	return t
}
