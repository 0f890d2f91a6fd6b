// Package script runs the Lua rendering on one Redis server: it packs groups
// of calls, sends one EVALSHA, and reads the answers. It charges a call at
// most once, whatever the client's settings and whatever is lost on the way.
package script

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/lua"
	"github.com/redis/go-redis/v9"
)

// Client is what a Server needs of a go-redis client.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Server is one Redis server that runs the script. It is safe for
// concurrent use.
type Server struct {
	client Client
	budget time.Duration
	now    func() time.Time // nil in production: the server's own clock
	loader loader
}

// NewServer returns the server behind client. It does no I/O. A round trip,
// with all that is sent again, takes at most budget.
func NewServer(client Client, budget time.Duration) *Server {
	s := &Server{client: client, budget: budget}
	if v, ok := client.(Virtual); ok {
		s.now = v.Now
	}
	return s
}

// Virtual is a client with a clock that the script takes for the server's.
// Only the library's own tests can name it.
type Virtual struct {
	Client
	Now func() time.Time
}

// once is a command that go-redis must not send again by itself. It re-sends
// a timed-out EVALSHA three times, and the caller sees no error.
type once struct{ *redis.Cmd }

// NoRetry tells go-redis so.
func (once) NoRetry() bool { return true }

// trip is one round trip: the caller waits for it, a goroutine of its own
// makes it, because a client may block for longer than the budget whatever
// context it is given.
type trip struct {
	server *Server
	groups []*Group
	state  atomic.Int32
	done   chan result
}

type result struct {
	reply string
	err   error
}

// The states of a trip. The caller that gives up withdraws a waiting trip,
// which then is never sent; one that was sent may have been counted.
const (
	waiting int32 = iota
	sent
	withdrawn
)

var errWithdrawn = errors.New("withdrawn by its caller")

// MarshalBinary is the script's name as an argument. go-redis calls it when
// it writes the command, which is the one instant that divides "certainly not
// counted" from "perhaps".
func (t *trip) MarshalBinary() ([]byte, error) {
	if !t.state.CompareAndSwap(waiting, sent) && t.state.Load() == withdrawn {
		return nil, errWithdrawn
	}
	return []byte(lua.SHA), nil
}

// reserve is the part of a budget, at most a twentieth, that is kept for the
// answer itself: who waits for the whole of it is late.
const reserve = 2 * time.Millisecond

// Run decides the groups in one round trip and fills their takes. On an
// error no take is decided: it matches backend.ErrUnavailable or
// backend.ErrPerhapsCounted, or is ctx's own where ctx ended before anything
// was sent.
func (s *Server) Run(ctx context.Context, groups []*Group) error {
	t := &trip{server: s, groups: groups, done: make(chan result, 1)}
	wait := s.budget - min(s.budget/20, reserve)
	go t.fly(context.WithoutCancel(ctx), time.Now().Add(wait))
	budget := time.NewTimer(wait)
	defer budget.Stop()
	select {
	case r := <-t.done:
		return t.arrive(r)
	case <-budget.C:
		return t.leave(fmt.Errorf("%w: budget of %v spent", backend.ErrUnavailable, s.budget))
	case <-ctx.Done():
		return t.leave(fmt.Errorf("headgate: nothing sent, nothing counted: %w", ctx.Err()))
	}
}

// arrive reads the reply on the caller's goroutine, whose buffers it fills.
func (t *trip) arrive(r result) error {
	if r.err == nil {
		r.err = answer(r.reply, t.groups)
	}
	switch {
	case r.err == nil:
		return nil
	case t.state.Load() == sent:
		return fmt.Errorf("%w: %w", backend.ErrPerhapsCounted, r.err)
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, r.err)
}

// leave gives the trip up. unsent is the error where nothing was sent.
func (t *trip) leave(unsent error) error {
	if t.state.CompareAndSwap(waiting, withdrawn) {
		return unsent
	}
	return fmt.Errorf("%w: %w", backend.ErrPerhapsCounted, context.DeadlineExceeded)
}

// fly makes the round trip, and again what the server said it did not run,
// until the deadline.
func (t *trip) fly(ctx context.Context, deadline time.Time) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	args := t.args()
	for pause := time.Millisecond; ; pause = min(2*pause, 16*time.Millisecond) {
		seen := t.server.loader.generation()
		reply, err := t.send(ctx, args)
		switch {
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			err = t.server.load(ctx, seen)
			if err == nil {
				continue
			}
		case err != nil && t.state.Load() == waiting && hasPrefix(err, soon) && wait(ctx, pause):
			continue
		}
		t.done <- result{reply, err}
		return
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// send sends the command once. A reply that says it did not run makes the
// trip a waiting one again.
func (t *trip) send(ctx context.Context, args []any) (string, error) {
	cmd := once{redis.NewCmd(ctx, args...)}
	cmd.SetFirstKeyPos(3)
	err := t.server.client.Process(ctx, cmd)
	if err != nil {
		if hasPrefix(err, notServed) {
			t.state.CompareAndSwap(sent, waiting)
		}
		return "", err
	}
	return cmd.Text()
}

// args returns the EVALSHA command.
func (t *trip) args() []any {
	args := []any{"evalsha", t, 0}
	for _, g := range t.groups {
		for _, k := range g.keys() {
			args = append(args, k)
		}
	}
	args[2] = len(args) - 3
	args = append(args, t.server.clock())
	for _, g := range t.groups {
		args = append(args, g.pack())
		for i := range g.Policies {
			args = append(args, field(&g.Policies[i]))
		}
	}
	return args
}

// clock is the script's first argument.
func (s *Server) clock() string {
	if s.now == nil {
		return ""
	}
	return fmt.Sprint(s.now().UnixMicro())
}

// notServed begin the replies of a server that did not run the command.
var notServed = []string{
	"NOSCRIPT", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY",
	"NOREPLICAS", "MISCONF", "BUSY", "OOM", "NOAUTH", "NOPERM", "WRONGPASS", "ERR max number of clients",
}

// soon are those that the next try, within the budget, may find gone.
var soon = []string{"TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "ERR max number of clients"}

func hasPrefix(err error, prefixes []string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	for _, p := range prefixes {
		if strings.HasPrefix(reply.Error(), p) {
			return true
		}
	}
	return false
}
