package wire

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/backend"
)

// Asked is a group as a test asks it: its takes hold their answers.
type Asked struct {
	Op       backend.Op
	Key      string
	Hash     string
	Policies []backend.Policy
	Takes    []Answer
}

// Answer is a take with its answer.
type Answer struct {
	backend.Group
	Decision backend.Decision
	Err      error
}

// Alone returns a server with the defaults.
func Alone(c Client, hub *layer.Shared, budget time.Duration) *Server {
	return NewServer(c, "node", Settings{Prefix: DefaultPrefix, Shared: hub, Budget: budget})
}

// Run decides the groups in one trip. Its error is that of the trip.
func (s *Server) Run(ctx context.Context, groups []*Asked) error {
	t := &Trip{}
	var takes []*Take
	for _, a := range groups {
		g := t.Add()
		g.Op, g.Key, g.Tag, g.Policies = a.Op, a.Key, Tag(a.Key, ""), a.Policies
		for i := range a.Takes {
			take := NewTake()
			take.Ask(&a.Takes[i].Group)
			g.Takes, takes = append(g.Takes, take), append(takes, take)
		}
	}
	go t.Fly(&Flight{Server: s, Begin: Now(), Deadline: Deadline(Now(), s.budget), Expired: func() {}})
	var trip error
	for _, a := range groups {
		for i := range a.Takes {
			take := takes[0]
			takes = takes[1:]
			w := &a.Takes[i]
			if w.Err = take.Wait(ctx, ctx.Done(), a.Op); w.Err == nil {
				w.Err = take.Decide(a.Op, &w.Group, &w.Decision)
			}
			var corrupt *backend.CorruptError
			var invalid *backend.InvalidError
			if w.Err != nil && !errors.As(w.Err, &corrupt) && !errors.As(w.Err, &invalid) {
				trip = w.Err
			}
		}
	}
	return trip
}

// NewTake returns a take to ask with.
func NewTake() *Take { return &Take{Answered: make(chan struct{}, 1)} }
