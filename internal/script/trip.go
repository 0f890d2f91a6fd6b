package script

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/lua"
)

// trip is one round trip: the caller waits for it, a goroutine of its own
// makes it, because a client may block for longer than the budget whatever
// context it is given.
type trip struct {
	route  Route
	budget time.Duration
	begin  time.Time
	groups []*Group
	packed packed
	state  atomic.Int32
	left   atomic.Bool // nobody waits for a reply any more
	visit  atomic.Pointer[visit]
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

// withdrawal ends a command that was not written. To go-redis it is a reply:
// the connection is as good as it was, and stays open.
type withdrawal string

func (w withdrawal) Error() string { return string(w) }

// RedisError tells go-redis so.
func (withdrawal) RedisError() {}

var errWithdrawn error = withdrawal("withdrawn by its caller")

// MarshalBinary is the script's name as an argument. go-redis calls it when
// it writes the command, which is the one instant that divides "certainly not
// counted" from "perhaps".
func (t *trip) MarshalBinary() ([]byte, error) {
	if !t.state.CompareAndSwap(waiting, sent) && t.state.Load() == withdrawn {
		return nil, errWithdrawn
	}
	return []byte(lua.SHA), nil
}

// String is what a hook that prints the command shows.
func (t *trip) String() string { return lua.SHA }

// reserve is the part of a budget, at most a twentieth, that is kept for the
// answer itself: who waits for the whole of it is late.
const reserve = 2 * time.Millisecond

// Run decides the groups in one round trip along the route and fills their
// takes. With all that is sent again it takes at most budget. On an error no
// take is decided: it matches backend.ErrUnavailable or
// backend.ErrPerhapsCounted, or is ctx's own where ctx ended before anything
// was sent.
func Run(ctx context.Context, route Route, budget time.Duration, groups []*Group) error {
	// The arguments are packed here: after it has left, the caller may use
	// its buffers for something else.
	t := &trip{route: route, budget: budget, begin: time.Now(), groups: groups, packed: pack(groups), done: make(chan result, 1)}
	wait := budget - min(budget/20, reserve)
	end := time.Now().Add(wait)
	go t.fly(context.WithoutCancel(ctx), end)
	timer := time.NewTimer(time.Until(end)) // not wait: this goroutine may have been held up since
	defer timer.Stop()
	select {
	case r := <-t.done:
		return t.arrive(r)
	case <-timer.C:
		t.left.Store(true)
		t.expire()
		spent := fmt.Errorf("budget of %v spent", budget)
		return t.leave(fmt.Errorf("%w: %w", backend.ErrUnavailable, spent), spent)
	case <-ctx.Done():
		// The round trip goes on under the budget: an impatient caller must
		// not hide a frozen node.
		go t.watch(end)
		return t.leave(fmt.Errorf("headgate: nothing sent, nothing counted: %w", ctx.Err()), ctx.Err())
	}
}

// watch sees a trip to its end whose caller has left.
func (t *trip) watch(end time.Time) {
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case r := <-t.done:
		t.end(r.err)
	case <-timer.C:
		t.left.Store(true)
		t.expire()
	}
}

// arrive reads the reply on the caller's goroutine, whose buffers it fills.
func (t *trip) arrive(r result) error {
	if r.err == nil {
		if r.err = answer(r.reply, t.groups); r.err != nil {
			t.settle(backend.Failed)
		}
	}
	t.settle(verdict(r.err))
	switch {
	case r.err == nil:
		return nil
	case t.state.Load() == sent:
		return t.unknown(r.err)
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, r.err)
}

// leave gives the trip up. unsent is the error where nothing was sent.
func (t *trip) leave(unsent, why error) error {
	if t.state.CompareAndSwap(waiting, withdrawn) {
		return unsent
	}
	return t.unknown(why)
}

// unknown is the error of a trip that was sent and had no answer. What only
// peeked counted nothing all the same.
func (t *trip) unknown(why error) error {
	for _, g := range t.groups {
		if g.Op != backend.Peek {
			return fmt.Errorf("%w: %w", backend.ErrPerhapsCounted, why)
		}
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, why)
}

// expire settles a trip that has outlived its budget.
func (t *trip) expire() { t.end(context.DeadlineExceeded) }

// end settles a trip that ended with err. One that was never sent, because all
// of the pool's connections were out while the server answered others, says
// nothing of the server. While it answers nobody it is to blame: a frozen
// server fills the pool with connections that never get ready.
func (t *trip) end(err error) {
	v := t.visit.Load()
	if v == nil {
		return
	}
	told := verdict(err)
	if told == backend.Failed && t.state.Load() != sent && v.server.busy(t.begin) {
		told = backend.Excused
	}
	if told == backend.Failed {
		t.route.Failed(v.server)
	}
	t.settle(told)
}

// visit is a trip's stay at a server, from the guard's leave to enter on.
type visit struct {
	server *Server
	leave  func(backend.Verdict)
}

// settle ends the stay, if it has not ended: only the first verdict counts.
func (t *trip) settle(v backend.Verdict) {
	stay := t.visit.Swap(nil)
	if stay == nil {
		return
	}
	if v == backend.Served {
		stay.server.served.Store(time.Now().UnixNano())
	}
	stay.leave(v)
}

// enter begins a stay at s, unless the trip is there already.
func (t *trip) enter(s *Server) error {
	if stay := t.visit.Load(); stay != nil && stay.server == s {
		return nil
	}
	leave, err := s.hub.Enter(s.node)
	if err != nil {
		t.route.Failed(s)
		return err
	}
	t.visit.Store(&visit{s, leave})
	return nil
}
