package batch

import (
	"context"

	"github.com/headgate-go/headgate/backend/internal/wire"
	"github.com/headgate-go/headgate/lua"
	"github.com/redis/go-redis/v9"
)

// command is one EVALSHA that carries groups: all of a batch on one server, one
// on a cluster, where a command may touch one slot.
type command struct {
	once
	groups []*group
	packed []*wire.Group // the same, as they stand in the command
	size   int           // calls of the groups
	args   *wire.Args
	err    error // how it ended

	write func(*command) error // called when the client writes the command
	wrote bool                 // guarded by the round trip's lock
	first bool                 // nothing stands before it in its pipeline
}

// once is a command that go-redis must not send again by itself: it re-sends a
// timed-out EVALSHA three times, and the caller sees no error.
type once struct{ redis.StringCmd }

// NoRetry is how go-redis asks.
func (*once) NoRetry() bool { return true } // mutant: no-retry

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

func newCommand(groups []*group, write func(*command) error) *command {
	c := &command{groups: groups, packed: make([]*wire.Group, len(groups)), write: write}
	for i, g := range groups {
		c.packed[i] = &g.Group
		c.size += g.Size
	}
	wire.Gather(c.packed)
	return c
}

// prepare makes the command ready to be sent to the server.
func (c *command) prepare(ctx context.Context, s *Server) {
	c.release()
	c.args = wire.NewArgs((*sha)(c), s.time(), s.Prefix, c.packed)
	c.wrote = false
	c.StringCmd = *redis.NewStringCmd(ctx, c.args.All()...)
	c.SetFirstKeyPos(3)
}

// release ends the use of the arguments, after the client has returned. The
// command of a round trip that its deadline has ended keeps them.
func (c *command) release() {
	if c.args != nil {
		c.args.Release()
		c.args = nil
	}
}

// awaited reports whether a caller waits for what was not sent yet.
func (c *command) awaited() bool {
	for _, g := range c.groups {
		if g.awaited() {
			return true
		}
	}
	return false
}

// end stores how the command ended, and gives the calls their answers or errors.
func (c *command) end(p wire.Prefix) {
	if c.err == nil {
		c.err = wire.Read(c.Val(), c.packed, p)
	}
	if c.err == nil {
		return
	}
	for _, g := range c.groups {
		g.fail(c.err)
	}
}

func (c *command) notify() {
	for _, g := range c.groups {
		g.notify()
	}
}
