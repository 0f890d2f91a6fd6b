package wire

import (
	"context"

	"github.com/headgate-go/headgate/lua"
	"github.com/redis/go-redis/v9"
)

// command is one EVALSHA. Its arguments lie in buffers that serve one trip
// after the other: what go-redis is given by value it boxes, one allocation
// an argument.
type command struct {
	reusable
	trip   *Trip
	at     *Server
	groups []*Group
	follow bool // something stands before it in its pipeline
	shared bool // others stand in its pipeline
	wrote  bool // it counts as written; guarded by the trip's lock
	args   []any
	bufs   []*blob
	used   int
	keys   int
	asked  blob // what the groups ask
}

// blob is an argument that is packed at the instant when it is written, into
// a buffer that serves one trip after the other.
type blob []byte

// MarshalBinary is how go-redis reads it.
func (b *blob) MarshalBinary() ([]byte, error) { return *b, nil }

// String keeps keys and numbers out of what a hook prints.
func (b *blob) String() string { return "…" }

// reusable is a command that go-redis must not send again by itself: it
// re-sends a timed-out EVALSHA three times, and the caller sees no error.
type reusable struct{ redis.StringCmd }

// NoRetry tells go-redis so.
func (*reusable) NoRetry() bool { return true } // mutant: no-retry

// sha is the script's name as an argument of the command: a type of its own,
// so that the command and its argument don't share their methods.
type sha struct{ *command }

var name = []byte(lua.SHA)

// MarshalBinary is called by go-redis when it writes the command.
func (s *sha) MarshalBinary() ([]byte, error) {
	if err := s.trip.write(s.command); err != nil {
		return nil, err
	}
	return name, nil
}

// String is what a hook that prints the command shows.
func (s *sha) String() string { return lua.SHA }

// withdrawal ends a command that was not written. To go-redis it is a reply:
// the connection is as good as it was, and stays open.
type withdrawal string

func (w withdrawal) Error() string { return string(w) }

// RedisError tells go-redis so.
func (withdrawal) RedisError() {}

var errWithdrawn error = withdrawal("withdrawn by its caller")

// ready makes the command carry the groups to the server.
func (c *command) ready(ctx context.Context, s *Server) {
	c.at, c.used, c.keys, c.wrote = s, 0, 0, false
	if c.args == nil {
		c.args = append(c.args, "evalsha", &sha{c}, &c.keys)
	}
	c.args = c.args[:3]
	for _, g := range c.groups {
		c.addKeys(s.prefix, g)
	}
	c.keys = len(c.args) - 3
	c.args = append(c.args, s.clock(), &c.asked)
	for i, g := range c.groups {
		c.addFields(g, c.groups[max(i-1, 0)])
	}
	c.StringCmd = *redis.NewStringCmd(ctx, c.args...)
	c.SetFirstKeyPos(3)
}

// buf returns an empty buffer that is the next argument.
func (c *command) buf() *blob {
	if c.used == len(c.bufs) {
		c.bufs = append(c.bufs, new(blob))
	}
	b := c.bufs[c.used]
	c.used++
	*b = (*b)[:0]
	c.args = append(c.args, b)
	return b
}

// addFields adds the names of the fields that the group's policies have, unless
// those that stand last are the same.
func (c *command) addFields(g, last *Group) {
	if g != last && g.listsAs(last) {
		g.fields = last.fields
		return
	}
	g.fields = len(c.args) - 3 - c.keys
	for i := range g.Policies {
		b := c.buf()
		*b = appendField(*b, &g.Policies[i])
	}
}

// addKeys adds the stored keys that the group's script touches.
func (c *command) addKeys(p Prefix, g *Group) {
	for i := range g.Policies {
		if !isApart(&g.Policies[i]) {
			b := c.buf()
			*b = p.appendHash(*b, g.Tag)
			break
		}
	}
	for i := range g.Policies {
		if isApart(&g.Policies[i]) {
			b := c.buf()
			*b = appendLog(p.appendHash(*b, g.Tag), &g.Policies[i])
		}
	}
}
