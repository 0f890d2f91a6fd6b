package batch

import (
	"context"

	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/headgate-go/headgate/backend/internal/wire"
	"github.com/headgate-go/headgate/lua"
	"github.com/redis/go-redis/v9"
)

// command is one EVALSHA that carries groups: all of a batch on one server, one
// on a cluster, where a command may touch one slot.
//
// A round trip keeps its commands for its next batch, since their buffers are most of what
// it allocates.
type command struct {
	client.Once
	groups []*group
	args   wire.Args

	write func(*command) error // called when the client writes the command
	at    *Server              // to which it is sent
	wrote bool                 // guarded by the round trip's lock
	first bool                 // nothing stands before it in its pipeline
}

// sha is the script's name as an argument of the command, with other methods.
type sha command

var name = []byte(lua.SHA)

// MarshalBinary is called by go-redis when it writes the command.
func (s *sha) MarshalBinary() ([]byte, error) {
	if err := s.write((*command)(s)); err != nil {
		return nil, err
	}
	return name, nil
}

// String is what a hook that prints the command shows.
func (s *sha) String() string { return lua.SHA }

// prepare makes the command ready to be sent to the server.
//
// The groups' calls are not packed yet: they are when the client writes the command.
func (c *command) prepare(ctx context.Context, s *Server, first bool) {
	c.at, c.first, c.wrote = s, first, false
	c.args.Groups = c.args.Groups[:0]
	for _, g := range c.groups {
		c.args.Groups = append(c.args.Groups, &g.Group)
	}
	c.StringCmd = *redis.NewStringCmd(ctx, c.args.Set((*sha)(c), s.clock(), s.Caller().UnixMicro(), s.Prefix)...)
	c.SetFirstKeyPos(3)
}

// unwritten reports whether a command never was.
func (t *roundTrip) unwritten(c *command) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !c.wrote
}
