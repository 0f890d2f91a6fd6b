package wire

import (
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/redis/go-redis/v9"
)

// errAstray stands for what a detour will tell the guard of.
var errAstray error = withdrawal("gone astray")

// flyApart sends a command per group, in one pipeline: a command may touch one
// slot of a cluster. What the node redirects goes on by itself, so that the
// others don't wait for it.
func (t *Trip) flyApart() End {
	s, w := t.Server, t.Ways
	_, err := t.guarded(func() (string, error) { return "", t.pipeline(s) })
	at, leave, first := t.claim()
	if !first {
		return End{Expired: true}
	}
	var astray []*Group
	said := err // the worst of what the node said; a refusal of the guard, or a client's panic, is of all groups
	for i, g := range t.Groups() {
		if err != nil {
			g.err = err
		} else if g.err == nil {
			g.err = answer(g.reply, t.groups[i:i+1], s.prefix)
		}
		said = worse(said, g.err, i == 0)
		switch {
		case g.err == nil:
		case astrays(g.err):
			t.groups[i] = nil
			astray = append(astray, g)
		default:
			g.fail(g.err)
		}
	}
	deadline := t.Deadline
	end := t.settle(at, leave, said)
	for _, g := range astray {
		go detour(s, w, g, deadline)
	}
	return end
}

// astrays reports whether another server, or another moment, may serve what
// had this error.
func astrays(err error) bool { return hasPrefix(err, redirects) || hasPrefix(err, soon) }

// worse returns which of two outcomes of a node's commands says more of it: a
// failure, then an answer. What went astray is excused here: the detour tells
// how it ended.
func worse(a, b error, first bool) error {
	if b != nil && astrays(b) {
		b = errAstray
	}
	switch va := verdict(a); {
	case first, va == layer.ErrExcused:
		return b
	case va == nil && verdict(b) == layer.ErrFailed:
		return b
	}
	return a
}

// detour carries on one group that s did not serve.
func detour(s *Server, w Ways, g *Group, deadline time.Duration) {
	t := &Trip{groups: []*Group{g}, used: 1}
	t.start(&Flight{Server: s, Ways: w, Begin: Now(), Deadline: deadline, Expired: func() {}})
	t.flyJoint(g.err)
}

// pipeline asks the server once for each group, and again for what it did not
// run because the script was missing or the pool had no connection. The outcomes
// lie in the groups.
func (t *Trip) pipeline(s *Server) error {
	for _, g := range t.Groups() {
		g.reply, g.err = "", nil
	}
	if err := t.enter(s, nil); err != nil {
		return err
	}
	for pending := t.Groups(); ; {
		seen := s.loader.generation()
		t.sendAll(s, pending)
		var again []*Group
		missing, full := false, false
		for _, g := range pending {
			switch {
			case g.err == nil:
			case redis.HasErrorPrefix(g.err, "NOSCRIPT"):
				again, missing = append(again, g), true
			case poolFull(g.err):
				again, full = append(again, g), true
			}
		}
		if len(again) == 0 || full && !t.waitForPool(s) {
			return nil
		}
		if missing {
			if err := s.load(t.ctx, seen); err != nil {
				for _, g := range again {
					g.err = err
				}
				return nil
			}
		}
		pending = again
	}
}

// sendAll sends the groups that someone waits for.
func (t *Trip) sendAll(s *Server, all []*Group) {
	for _, g := range all {
		g.err = errWithdrawn
	}
	t.sending = t.awaited(t.sending[:0], all)
	groups := t.sending
	if len(groups) == 0 {
		return
	}
	for i, g := range groups {
		g.cmd.trip, g.cmd.follow, g.cmd.shared = t, i > 0, len(groups) > 1
		g.cmd.groups = append(g.cmd.groups[:0], g)
		g.cmd.ready(t.ctx, s)
	}
	processAll(t.ctx, s.bounded(Now()), groups)
	for _, g := range groups {
		if g.err = g.cmd.Err(); g.err == nil {
			g.reply = g.cmd.Val()
		} else if hasPrefix(g.err, notServed) {
			t.notRun(&g.cmd)
		}
	}
}
