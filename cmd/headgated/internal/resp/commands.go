package resp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/cmd/headgated/internal/bounded"
)

// Options are the settings of a Server.
type Options struct {
	// Plan returns the limiter of a plan: nil for a plan without limits, and an error for one
	// that the file does not have. headgate.ErrBlocked is a plan that gets nothing. Nil: there
	// are no HG commands.
	Plan func(name string) (*headgate.Limiter, error)
	// Base is any limiter on the store of CL.THROTTLE.
	Base *headgate.Limiter
	// OnFailure is the failure mode of CL.THROTTLE; 0 answers with an error.
	OnFailure headgate.FailureMode
	// MaxBytes of a command.
	MaxBytes int
	// Slots are for long commands; nil is no bound.
	Slots bounded.Slots
	// Observe receives each command that is known, and its error. A web page's request is POST
	// or HOST.
	Observe func(command string, err error)
	// TLS of the connections; nil is none.
	TLS *tls.Config
	// Password returns what AUTH asks for; nil and "" are none.
	Password func() string
}

// command is one of the words. A new one is a line in commands.
type command struct {
	least, most int // arguments
	usage       string
	run         func(s *Server, args []string, r reply) error
}

var commands = map[string]command{
	"CL.THROTTLE": {4, 5, "key max_burst count period [quantity]", (*Server).cell},
	"HG.TAKE":     {2, maxArgs, "plan key [cost ...]", (*Server).take},
	"HG.PEEK":     {2, maxArgs, "plan key [cost ...]", (*Server).peek},
	"HG.RESERVE":  {3, maxArgs, "plan key lease-milliseconds [cost ...]", (*Server).reserve},
	"HG.COMMIT":   {2, maxArgs, "plan token [actual ...]", (*Server).commit},
	"HG.CANCEL":   {2, 2, "plan token", (*Server).settleNothing},
	"HG.RESET":    {2, 2, "plan key", (*Server).reset},
}

// runs decides a command.
func (s *Server) runs(name string, cmd command, args []string, r reply) {
	if len(args) < cmd.least || len(args) > cmd.most {
		r.error("ERR usage: " + name + " " + cmd.usage)
		return
	}
	err := cmd.run(s, args, r)
	if err != nil {
		r.error(code(err) + " " + strings.TrimPrefix(err.Error(), "headgate: "))
	}
	s.opts.Observe(name, err)
}

// code is the first word of an error, by which clients distinguish them.
func code(err error) string {
	switch {
	case errors.Is(err, headgate.ErrPerhapsCounted):
		return "PERHAPSCOUNTED"
	case errors.Is(err, headgate.ErrUnavailable):
		return "UNAVAILABLE"
	case errors.Is(err, headgate.ErrNotHeld):
		return "NOTHELD"
	case errors.Is(err, headgate.ErrNeverAdmissible):
		return "NEVERADMISSIBLE"
	}
	return "ERR"
}

func (s *Server) plan(name string) (*headgate.Limiter, error) {
	if s.opts.Plan == nil {
		return nil, errors.New("no -policies: there are no plans")
	}
	return s.opts.Plan(name)
}

// call reads plan, key and costs. One cost is that of every policy.
func (s *Server) call(plan, key string, costs []string) (*headgate.Limiter, headgate.Call, error) {
	l, unknown := s.plan(plan)
	c := headgate.Call{Key: key}
	var err error
	if c.Costs, err = numbers(costs); err == nil && len(c.Costs) == 1 {
		c = l.Part(key, c.Costs...).Call
	}
	return l, c, cmp.Or(err, unknown)
}

func numbers(args []string) (all []int64, err error) {
	for _, a := range args {
		n, err := strconv.ParseInt(a, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no integer", a)
		}
		all = append(all, n)
	}
	return all, nil
}

func (s *Server) take(args []string, r reply) error {
	l, c, err := s.call(args[0], args[1], args[2:])
	if err != nil || l == nil {
		return r.unlimited(err, 0)
	}
	d, err := l.Do(s.ctx, c)
	if err == nil {
		r.decision(&d, 0)
	}
	return err
}

func (s *Server) peek(args []string, r reply) error {
	l, c, err := s.call(args[0], args[1], args[2:])
	if err != nil || l == nil {
		return r.unlimited(err, 0)
	}
	d, err := l.Peek(s.ctx, c)
	if err == nil {
		r.decision(&d, 0)
	}
	return err
}

func (s *Server) reserve(args []string, r reply) error {
	ms, err := numbers(args[2:3])
	if err != nil {
		return err
	}
	if ms[0] < 1 || ms[0] > int64(24*time.Hour/time.Millisecond) {
		return fmt.Errorf("a lease of %d ms; want 1000 to 86400000", ms[0])
	}
	l, c, err := s.call(args[0], args[1], args[3:])
	if err != nil || l == nil {
		if err = r.unlimited(err, 1); err == nil {
			r.bulk("") // no token: nothing was reserved
		}
		return err
	}
	c.Lease = time.Duration(ms[0]) * time.Millisecond
	held, d, err := l.Reserve(s.ctx, c)
	if err == nil {
		r.decision(&d, 1)
		r.bulk(held.Token())
	}
	return err
}

func (s *Server) commit(args []string, r reply) error {
	actual, err := numbers(args[2:])
	if err != nil {
		return err
	}
	nothing := len(actual) > 0 && !slices.ContainsFunc(actual, func(n int64) bool { return n != 0 })
	return s.settle(args, r, nothing, func(ctx context.Context, held *headgate.Reservation) error { return held.Commit(ctx, actual...) })
}

func (s *Server) settleNothing(args []string, r reply) error {
	return s.settle(args, r, true, func(ctx context.Context, held *headgate.Reservation) error { return held.Cancel(ctx) })
}

// settle settles the reservation of a token. nothing is a settlement that charges nothing.
func (s *Server) settle(args []string, r reply, nothing bool, by func(context.Context, *headgate.Reservation) error) error {
	l, err := s.plan(args[0])
	switch {
	//mutant:nothing-was-reserved
	case l != nil && args[1] == "" && nothing: // RESERVE of nothing has no token
		r.simple("OK")
		return nil
	//mutant:nothing-to-settle
	case l == nil && args[1] == "" && (err == nil || errors.Is(err, headgate.ErrBlocked)): // as RESERVE of such a plan answers
		r.simple("OK")
		return nil
	case err == nil && l == nil: // it had limits when the token was made
		return headgate.ErrNotHeld
	case err != nil:
		return err
	}
	held, err := l.Resume(args[1])
	if err != nil {
		return err
	}
	if err := by(s.ctx, held); err != nil {
		return err
	}
	r.simple("OK")
	return nil
}

func (s *Server) reset(args []string, r reply) error {
	l, err := s.plan(args[0])
	if err != nil && !errors.Is(err, headgate.ErrBlocked) {
		return err
	}
	//mutant:nothing-to-reset
	if l != nil {
		if err := l.Reset(s.ctx, args[1]); err != nil {
			return err
		}
	}
	r.simple("OK")
	return nil
}

// decision writes an array with room for more. What is not counted is -1.
func (r reply) decision(d *headgate.Decision, more int) {
	r.array(7 + more)
	allowed, left, reset := int64(0), int64(-1), int64(-1)
	if d.Allowed {
		allowed = 1
	}
	if d.Known != backend.NotCounted {
		left, reset = d.Remaining, milliseconds(d.ResetAfter)
	}
	r.integer(allowed)
	r.bulk(d.Policy)
	r.integer(d.Limit)
	r.integer(left)
	r.integer(milliseconds(d.RetryAfter + d.Delay)) // of a call that passes it is the Delay
	r.integer(reset)
	r.bulk(d.Source.String())
}

// unlimited answers for a plan without a limiter, which no store decides. err is nil for one
// without limits, headgate.ErrBlocked for one that gets nothing, or what is wrong.
func (r reply) unlimited(err error, more int) error {
	allowed, limit, retry, source := int64(1), int64(-1), int64(0), "unlimited"
	//mutant:blocked-plan-denied
	if errors.Is(err, headgate.ErrBlocked) {
		allowed, limit, retry, source = 0, 0, -1, "blocked"
	} else if err != nil {
		return err
	}
	r.array(7 + more)
	r.integer(allowed)
	r.bulk("")
	for _, n := range []int64{limit, limit, retry, -1} {
		r.integer(n)
	}
	r.bulk(source)
	return nil
}

// milliseconds rounds up: a call sooner than that would be denied.
func milliseconds(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
