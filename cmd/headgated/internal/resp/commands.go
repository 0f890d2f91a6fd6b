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
	// Plan returns what limits a call of a plan by the key: alternatives of a key each, of which
	// the first that has room is charged. They are none for a plan without limits, and an error
	// for one that the file does not have. headgate.ErrBlocked is a plan that gets nothing. Nil:
	// there are no HG commands.
	Plan func(name, key string) ([]headgate.Part, error)
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

func (s *Server) plan(name, key string) ([]headgate.Part, error) {
	if s.opts.Plan == nil {
		return nil, errors.New("no -policies: there are no plans")
	}
	return s.opts.Plan(name, key)
}

// call reads plan, key and costs. One cost is that of every policy. A plan with first has no other
// costs, since each of its alternatives has its own policies.
func (s *Server) call(plan, key string, costs []string) ([]headgate.Part, error) {
	parts, unknown := s.plan(plan, key)
	all, err := numbers(costs)
	if err == nil && len(parts) > 1 && len(all) > 1 {
		err = fmt.Errorf("%d costs; a plan with first takes one, of every policy", len(all))
	}
	for i := range parts {
		if p := &parts[i]; len(all) == 1 {
			p.Call.Costs = p.Limiter.Part(key, all...).Call.Costs
		} else {
			p.Call.Costs = all
		}
	}
	return parts, cmp.Or(err, unknown)
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
	parts, err := s.call(args[0], args[1], args[2:])
	if err != nil || len(parts) == 0 {
		return r.unlimited(err, 0)
	}
	var d headgate.Decision
	if len(parts) > 1 {
		d, err = headgate.First(s.ctx, parts...)
	} else {
		d, err = parts[0].Limiter.Do(s.ctx, parts[0].Call)
	}
	if err == nil {
		r.decision(&d, 0)
	}
	return err
}

// peek answers by the alternative that a take would be charged to, or that passes soonest. Each is
// looked at by itself.
func (s *Server) peek(args []string, r reply) error {
	parts, err := s.call(args[0], args[1], args[2:])
	if err != nil || len(parts) == 0 {
		return r.unlimited(err, 0)
	}
	var first headgate.Decision
	for i, p := range parts {
		d, err := p.Limiter.Peek(s.ctx, p.Call)
		if err != nil {
			return err
		}
		if i == 0 || d.Allowed || d.RetryAfter < first.RetryAfter {
			first = d
		}
		if d.Allowed {
			break
		}
	}
	r.decision(&first, 0)
	return nil
}

func (s *Server) reserve(args []string, r reply) error {
	ms, err := numbers(args[2:3])
	if err != nil {
		return err
	}
	if ms[0] < 1 || ms[0] > int64(24*time.Hour/time.Millisecond) {
		return fmt.Errorf("a lease of %d ms; want 1000 to 86400000", ms[0])
	}
	parts, err := s.call(args[0], args[1], args[3:])
	if err != nil || len(parts) == 0 {
		if err = r.unlimited(err, 1); err == nil {
			r.bulk("") // no token: nothing was reserved
		}
		return err
	}
	for i := range parts {
		parts[i].Call.Lease = time.Duration(ms[0]) * time.Millisecond
	}
	d, token, err := s.reserveFirst(parts)
	if err == nil {
		r.decision(&d, 1)
		r.bulk(token)
	}
	return err
}

// reserveFirst reserves, and returns the token of the alternative that was charged. If no store
// decided, no reservation has one.
func (s *Server) reserveFirst(parts []headgate.Part) (d headgate.Decision, token string, err error) {
	if len(parts) == 1 {
		held, d, err := parts[0].Limiter.Reserve(s.ctx, parts[0].Call)
		return d, held.Token(), err
	}
	rs, d, err := headgate.ReserveFirst(s.ctx, parts...)
	for _, held := range rs {
		token = cmp.Or(token, held.Token())
	}
	return d, token, err
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
	parts, err := s.plan(args[0], "")
	switch {
	//mutant:nothing-was-reserved
	case len(parts) > 0 && args[1] == "" && nothing: // RESERVE of nothing has no token
		r.simple("OK")
		return nil
	//mutant:nothing-to-settle
	case len(parts) == 0 && args[1] == "" && (err == nil || errors.Is(err, headgate.ErrBlocked)): // as RESERVE of such a plan answers
		r.simple("OK")
		return nil
	case err == nil && len(parts) == 0: // it had limits when the token was made
		return headgate.ErrNotHeld
	case err != nil:
		return err
	}
	var held *headgate.Reservation
	for _, p := range parts { // a token is of the policies of one
		if held, err = p.Limiter.Resume(args[1]); err == nil {
			break
		}
	}
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
	parts, err := s.plan(args[0], args[1])
	if err != nil && !errors.Is(err, headgate.ErrBlocked) {
		return err
	}
	for _, p := range parts {
		if err := p.Limiter.Reset(s.ctx, args[1]); err != nil {
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
