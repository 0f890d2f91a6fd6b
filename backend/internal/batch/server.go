package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/without"
	"github.com/headgate-go/headgate/lua"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"
)

// Capabilities are what a store on Redis can do.
var Capabilities = backend.Capabilities{
	Ops:  backend.Basic.Ops | backend.OpsOf(backend.Reserve, backend.Settle, backend.Extend, backend.Record, backend.Borrow, backend.Return),
	Keys: 1,
}

// Client is what a Server needs of a go-redis client.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Timed is a client with clocks of its own, as the library's tests have. The script
// reads server in place of the server's clock, and a call reads caller in place of this
// host's.
type Timed interface {
	Clocks() (sends interface {
		Process(ctx context.Context, cmd redis.Cmder) error
	}, server, caller func() time.Time)
}

// Settings are what all servers of a store have in common.
type Settings struct {
	Prefix          names.Prefix
	Budget          time.Duration // maximum duration of a decision
	Shared          *layer.Shared // its guard is asked before every round trip
	DisableBatching bool          // every call makes a round trip of its own

	// The clocks of a Timed client. nil in production: the server's own, and this host's.
	Clock, Caller func() time.Time
}

// Defaults fills in what was left out.
func (s *Settings) Defaults(budget time.Duration) {
	s.Prefix, s.Budget = cmp.Or(s.Prefix, names.DefaultPrefix), cmp.Or(s.Budget, budget)
}

// Check refuses settings out of range.
func (s *Settings) Check() error {
	if s.Budget < time.Millisecond || s.Budget > time.Minute {
		return &backend.InvalidError{What: "budget", Value: s.Budget, Want: "1ms to 1m, or 0 for the default"}
	}
	return s.Prefix.Check()
}

// Server is one Redis server that runs the script. It is safe for concurrent
// use. Its instants are as now.
type Server struct {
	Settings
	Node   string // names its circuit
	client Client

	bounded  atomic.Pointer[client.View]
	loading  singleflight.Group // of the script, and of PING
	loads    atomic.Int64       // that have ended well
	served   atomic.Int64       // when a round trip last ended well
	tryFrom  atomic.Int64       // from when on the idle connections are tried again
	lost     atomic.Int64       // when a connection was last seen to have ended
	sent     atomic.Int64       // when a script was last written, or a connection tried
	hides    bool               // the client hides how its connections are
	warm     atomic.Bool        // Warm was called
	warming  atomic.Bool        // and has not ended
	link     *link
	begins   begins
	refused  atomic.Int64          // when a round trip last failed, or when the circuit last refused one, or a call
	shut     atomic.Pointer[error] // why the circuit refused a round trip; nil again once it awaits no answer
	probing  atomic.Bool           // a probe waits for the server
	staying  atomic.Bool           // a probe waits until it is answered
	dials    atomic.Int64          // of probes and looks, that have not returned
	looking  atomic.Int64          // when the look under way began; 0: there is none
	lookFrom atomic.Int64          // from when on there is another one, after one that was answered
	mute     atomic.Int64          // since when nothing was answered, as round trips that missed their deadline show
	split    atomic.Int64          // until when a command names one slot, since the server refuses two
}

// NewServer returns the server behind client. It does no I/O. Its circuit has
// the name node.
func NewServer(client Client, node string, set Settings) *Server {
	s := &Server{Settings: set, Node: node, client: client}
	if t, ok := client.(Timed); ok {
		s.client, s.Clock, s.Caller = t.Clocks()
	}
	s.link = newLink(s.client)
	if s.Caller == nil {
		s.Caller = time.Now
	}
	_, s.hides = s.client.(*redis.Client)
	return s
}

// relearn is how long a server is sent one slot per command after it has refused two. Its
// address may lead to another node by then. A node that lacks the script is another one.
const relearn = time.Minute

// Splits reports whether the server refuses a script over two slots, as a proxy in front of a
// cluster does.
func (s *Server) Splits() bool { return now() < time.Duration(s.split.Load()) }

// clock returns the script's first argument: empty if it is to read the server's clock.
func (s *Server) clock() string {
	if s.Clock == nil {
		return ""
	}
	return strconv.FormatInt(s.Clock().UnixMicro(), 10)
}

// PastCircuit returns a function that decides a request past the server's circuit, for a
// look at why that is open.
func (s *Server) PastCircuit(r Router) func(context.Context, *backend.Request) error {
	set := s.Settings
	set.Shared = &layer.Shared{}
	q := NewQueue(&Server{Settings: set, Node: s.Node, client: s.client, link: s.link}, r)
	return func(ctx context.Context, r *backend.Request) error {
		return q.Do(ctx, names.Tag(r.Key, r.Sub), 0, r, new(backend.Decision))
	}
}

// Client returns the client to send with, whose commands end with their context.
// One that is not of go-redis' own make has to see to that by itself.
//
// A user's client keeps its own settings for the user's commands. The view shares its pool
// and its hooks.
func (s *Server) Client() Client {
	user, ok := s.client.(*redis.Client)
	if !ok {
		return s.client
	}
	v := s.bounded.Load()
	if v.Old() {
		v = client.NewView(user, s.Budget)
		s.bounded.Store(v)
	}
	return v.Conn
}

// answered reports whether a round trip has ended well since.
// Any round trip counts, also one whose callers had left.
func (s *Server) answered(since time.Duration) bool { return s.served.Load() > int64(since) }

// seldom is the time between two tries of what a failure makes a process try. These are the idle
// connections, a look that was answered, and a probe beside one that has its connection. On a
// host without a free processor many processes fail at once. What each of them starts then keeps
// the processors from the server.
const seldom = time.Second

// tryIdle tries all idle connections at once, and so closes the dead ones. After
// a load balancer has forgotten its connections each is dead and silent: the
// trial of an open circuit would meet the next one.
func (s *Server) tryIdle() {
	at, due := now(), s.tryFrom.Load()
	//mutant:failures-start-little
	if int64(at) < due || !s.tryFrom.CompareAndSwap(due, int64(at+seldom)) {
		return
	}
	//mutant:idle-connections-tried
	s.tryAll()
}

// tryAll sends a PING for each idle connection. A connection that is dead fails it, and the
// client closes it.
func (s *Server) tryAll() {
	within := s.Budget
	//mutant:late-pings-read
	if client.HalfFree(s.client) {
		within = max(within, lateReplies)
	}
	for range client.Idle(s.client) {
		go func() { _ = s.process(within, "", "ping") }()
	}
}

// Send sends a command that is no script. It has its own time to begin a connection, and
// its reply has the time within. The command gets its last argument, which is text.
//
// go-redis reads the last argument when it writes the command. That instant divides the two
// times.
func (s *Server) Send(within time.Duration, last string, of func(ctx context.Context, last any) redis.Cmder) (err error) {
	p := &payload{text: last, ready: s.begins.ready}
	givenUp := now() + client.DialTimeout(s.client)
	s.await(func() time.Duration { return givenUp })
	defer s.begins.ended()
	ctx, cancel := withOwnTime(s.client, s.Budget, func() (time.Duration, bool) {
		at := time.Duration(p.written.Load())
		return at + within, at > 0
	})
	defer cancel()
	err = client.Guarded(func() error { return client.Process(ctx, s.Client(), of(ctx, p)) })
	if err == nil {
		s.link.answered(time.Duration(p.written.Load()))
	}
	//mutant:slow-answer-named
	if p.written.Load() > 0 && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)) {
		return fmt.Errorf("no answer within %v", within)
	}
	//mutant:slots-hidden
	return without.Password(client.Untimed(err))
}

// process sends a command whose reply is of no interest.
func (s *Server) process(within time.Duration, last string, first ...any) error {
	return s.Send(within, last, func(ctx context.Context, last any) redis.Cmder {
		return &client.Once{StringCmd: *redis.NewStringCmd(ctx, append(first, last)...)}
	})
}

// Warm begins a connection and loads the script, once: the first call need not begin
// either.
func (s *Server) Warm() {
	//mutant:nodes-warmed
	if s.warm.CompareAndSwap(false, true) {
		s.warming.Store(true)
		go func() {
			defer s.warming.Store(false)
			_, _ = s.loadOnce(0)
		}()
	}
}

// load loads the script, unless one has been loaded since seen were. After a restart or
// a SCRIPT FLUSH every batch is answered NOSCRIPT at once, and the script's bytes should
// go over the wire once. A client may block for longer than the budget.
func (s *Server) load(seen int64) error {
	done := s.loading.DoChan("", func() (any, error) { return s.loadOnce(seen) })
	select {
	case r := <-done:
		return r.Err
	//mutant:load-within-budget
	case <-time.After(s.Budget):
		s.loading.Forget("")
		return context.DeadlineExceeded
	}
}

// loadOnce loads the script, unless one has been loaded since seen were.
func (s *Server) loadOnce(seen int64) (any, error) {
	//mutant:one-load-per-flush
	if s.loads.Load() != seen {
		return nil, nil
	}
	err := s.process(s.Budget, lua.Script, "script", "load")
	switch {
	case err == nil:
		s.loads.Add(1)
		//mutant:slots-learnt-anew
		if s.answered(time.Duration(s.split.Load()) - relearn) { // by a node that had the script
			s.split.Store(0)
		}
	case classOf(err) == 0 && errors.As(err, new(redis.Error)):
		err = notLoaded{err}
	}
	return nil, err
}
