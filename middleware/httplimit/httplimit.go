package httplimit

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/internal/adapter"
	"github.com/headgate-go/headgate/middleware/internal/address"
	"github.com/headgate-go/headgate/middleware/internal/parts"
	"github.com/headgate-go/headgate/middleware/internal/settle"
)

// Options are the settings of the middleware; nil is the same as the zero
// Options. The functions must be safe for concurrent use.
type Options struct {
	// Cost returns what a request costs: one number of units per policy, in the
	// limiter's order. nil, also as the result, is 1 of each. With Func and NewAll the
	// call has the costs, and Cost must be nil. A request whose costs are all 0 passes
	// without a decision. One with a negative cost gets 400; ContentLength is -1 if the
	// body is chunked. A cost above what a policy can ever grant gets 403, where OnError may
	// answer 413.
	Cost func(*http.Request) []int64
	// Units names the unit of a policy's counts, by the policy's name, such as "tokens"
	// or "content-bytes". It has 1 to 64 of the letters, digits, '-', '_' and '.'.
	// Clients read it as qu in RateLimit-Policy. A policy without a name here counts
	// requests. Without any name, qu is "units" if Cost or Settle is set. It is so too if the
	// call of Func or a part has a cost that is not 1. New refuses a name that no policy of
	// the limiter has. NewAll can't: a plan may lack a policy. It logs the same error at the
	// first request, by its first limiter. A name of the limiters' policy file is no error.
	Units map[string]string
	// Names returns the name that clients get of a policy, in RateLimit, RateLimit-Policy and the
	// body of a denial, and that OnDenied has in Denial.Violated. A name that is no unit of
	// Units, such as "", leaves the policy out. NoNames leaves all out, and X-RateLimit-* and
	// both fields with them. Retry-After stays. nil is the policy's own name.
	Names func(policy string) string
	// EmptyKey is what a request without a key gets; EmptyRefused where it is not
	// set.
	EmptyKey EmptyKey
	// IPv6Prefix is the number of bits that IPv6 addresses count by, 1 to 128;
	// 0 is 64.
	IPv6Prefix int
	// Skip reports the requests that pass without being counted, as health
	// checks and CORS preflights; nil is none.
	Skip func(*http.Request) bool
	// OnDenied answers a request that is denied, 429 or 503, with all headers set, also
	// Cache-Control: no-store; nil is Denial.Write.
	OnDenied func(http.ResponseWriter, *http.Request, Denial)
	// OnError answers a request that could not be decided, by the error of the key's function or
	// of the limiter, or by a *RequestError. The status is 400, 403, 500, or 503 of a closed
	// store. Cache-Control: no-store is set. nil is WriteError. It is not called for a client
	// that left.
	OnError func(http.ResponseWriter, *http.Request, error)
	// RetryJitter is how much later than needed Retry-After may be, at random
	// and in whole seconds: 0 to 1 h. Clients that were denied together then do
	// not return together.
	RetryJitter time.Duration
	// XRateLimit adds X-RateLimit-Limit, -Remaining and -Reset (in seconds from now) of one
	// policy, for clients that do not read RateLimit. On a denial it is the policy that
	// denies. Else it is the one with least left of those that count requests, or of all if
	// none does. Units names the unit of the others.
	XRateLimit bool
	// ResetEpoch makes X-RateLimit-Reset the second of the Unix epoch, by this process's
	// clock, in place of the seconds from now. It is rounded up. A FixedWindow of whole
	// seconds and a Calendar have the second at which their window ends.
	ResetEpoch bool
	// Settle makes each request a reservation of its cost. It returns what the request
	// has used, once its handler has returned, panicked or hijacked the connection. That
	// is one number of units per policy, in the limiter's order. With NewAll the list
	// has the policies of all parts that were decided, those of the first part first;
	// see Outcome.Units. Less than the cost gives the rest back, more is charged above
	// the limit. nil, or a list that does not fit the policies, leaves the cost as it
	// is; of the latter the limiter's Logger gets the first. The function nil settles
	// nothing but slots of algo.InFlight.
	//
	// The response ends when the store has answered, or 50 ms later. A settlement that no
	// store has decided is repeated for the length of the lease, also if the client has left.
	// One that fails changes nothing for the client: the cost is charged until it has aged,
	// and a slot is taken until the lease ends. Observers of the limiter see the error of
	// each try, and its Logger gets the first that was lost. While 4,096 settlements are
	// repeated, others have one try.
	Settle func(*Outcome) []int64
	// Settled gets the outcome of each request that was settled, with the states after the
	// settlement. It is for a log line, a metric, or a trailer set in Outcome.Header. The fields
	// in that header have these states too, also if others were sent before. Settled runs on the
	// handler's goroutine before the response ends. Outcome.States is nil if the settlement
	// failed, or if the store has not answered within 50 ms. A settlement that is repeated
	// later calls it no more, so a handler that keeps tokens stores the usage before it
	// returns. nil is none; it needs Settle, such as Reported.
	Settled func(*Outcome)
	// SettleWait is how long a denied request waits while others of its key in this
	// process are not settled yet, 0 to 1 min. Their cost may be given back. With NewAll
	// it is the key of the first part: put first the key by which requests wait for each
	// other, such as the user. Waiting requests pass in the order of their
	// arrival. Each of their tries is a decision for the limiter's Observer. 0 denies at
	// once.
	SettleWait time.Duration
	// Lease is the length of a reservation's lease, 1 s to 24 h, extended while the
	// handler runs; 0 is headgate.DefaultLease. It is how long a slot stays taken where
	// the process dies, and the Retry-After of a request that finds no slot. A part of
	// NewAll may name its own.
	//
	// If the store can't be asked until the lease ends, FailClosed of an algo.InFlight
	// policy ends the request's context: context.Cause is headgate.ErrLeaseEnded. End a
	// stream with an error then, by panic(http.ErrAbortHandler). Choose a lease longer than
	// the outages to survive.
	Lease time.Duration
	// Delayed is how many requests of the middleware wait at once for the Delay of their decision,
	// which an algo.LeakyQueue makes. A further one gets 503, with its Delay in Retry-After, and
	// its unit is lost. 0 is 1,000. Below 0 none waits here, and none does in Allow: the handler
	// has the Delay in Call.Each.
	Delayed int
	// ExposeHeaders lets scripts of other origins read the fields, by
	// Access-Control-Expose-Headers.
	ExposeHeaders bool
}

// NoNames is an Options.Names that leaves all policies out: clients get none of the fields but
// Retry-After.
func NoNames(string) string { return "" }

// EmptyKey is what a request gets that has no key: the header is missing, no
// pattern matches, the connection has no IP address.
type EmptyKey uint8

// The choices for a request without a key. With NewAll they are for each part whose key
// is empty.
const (
	EmptyRefused EmptyKey = iota // status 400; nothing is counted. What a mux does not match, the mux answers
	EmptyShared                  // all requests without a key share one count
	EmptyPasses                  // the request passes and is not counted
)

// emptyKey is the key that EmptyShared counts on. No other Key makes it.
const emptyKey = "empty:"

// New returns a middleware that lets pass what the limiter allows. It refuses,
// with a *headgate.InvalidError, what could not be kept: a zero limiter, a Key
// with wrong arguments, options out of range.
//
// The middleware answers a denial with status 429, and with 503 where the
// limiter failed closed; see the package's documentation. It adds header fields
// and passes the ResponseWriter on as it is. Of two on one route each adds its own
// policies to RateLimit and RateLimit-Policy. A name stands there once: a policy of the
// inner one replaces one of an equal name.
//
// Two middlewares on one route need policies of different names. With the same name,
// algorithm, period and key both charge one count, and each request counts twice. The
// limiter's Logger gets a warning if a request of this process meets both. A request
// that the inner one denies stays charged to the outer one; NewAll charges all or none.
func New(limiter *headgate.Limiter, key Key, opts *Options) (func(http.Handler) http.Handler, error) {
	if opts == nil {
		opts = &Options{}
	}
	if len(limiter.Policies()) == 0 {
		return nil, invalid("limiter", "nil or zero", "one that headgate.New returned")
	}
	switch {
	case key.err != nil:
		return nil, key.err
	case key.add == nil && key.call == nil:
		return nil, invalid("key", "Key{}", "one made by a function of package httplimit, as RemoteAddr")
	case key.call != nil && opts.Cost != nil:
		return nil, invalid("cost", "a function", "nil with Func, whose call has the costs")
	}
	m, err := newMiddleware(opts)
	if err == nil {
		err = cmp.Or(opts.checkUnits(limiter), settle.CheckLimiter(limiter, opts.Settle != nil))
	}
	if err != nil {
		return nil, err
	}
	by := asker{prefix: m.IPv6Prefix, warn: func(_ *http.Request, err error) { adapter.Of(limiter).Logger().Warn(noClient, "error", err) }}
	m.parts = func(r *http.Request, s *scratch) (err error) {
		s.parts = append(s.parts[:0], headgate.Part{Limiter: limiter})
		if call := &s.parts[0].Call; key.call != nil {
			*call, err = key.call(r)
		} else {
			err = m.keyed(&key, by, r, s, call)
		}
		return err
	}
	return m.wrap, nil
}

// NewAll returns a middleware that decides each request by the parts that the function
// returns for it. These are limiters of several keys, such as a user and the user's
// organisation, or the limiter of a customer's plan. The request passes if every part
// allows it, and else is charged to none; see headgate.All. No parts are no limit. An
// error goes to Options.OnError, and to a log. If the function returns parts beside the
// error, it is the Logger of their first limiter. Else an error of status 500 goes to
// ErrorLog of the http.Server, unless there is an OnError. Each gets one line per second at
// most.
//
//	limit, err := httplimit.NewAll(func(r *http.Request) ([]headgate.Part, error) {
//		tenant := r.Header.Get("X-Tenant") // authenticated before
//		return []headgate.Part{plans.For(tenant).Part(headgate.Key("tenant", tenant))}, nil
//	}, nil)
//
// The fields have a member per policy of all parts. Of policies of one name they show
// the one with less Remaining, and of those that deny the one with the longer
// RetryAfter. So a name has two uses. With one name in all parts, such as "tokens", one
// ReportPolicy settles all of them, but a client can't see which part denies. With a name
// per part, such as "user-tokens", a client sees that, and the handler reports each name.
// Key.Of returns the text of a key.
func NewAll(parts func(*http.Request) ([]headgate.Part, error), opts *Options) (func(http.Handler) http.Handler, error) {
	return newParts(parts, opts, false)
}

func newParts(parts func(*http.Request) ([]headgate.Part, error), opts *Options, first bool) (func(http.Handler) http.Handler, error) {
	if opts == nil {
		opts = &Options{}
	}
	switch {
	case parts == nil:
		return nil, invalid("parts", "nil", "a function")
	case opts.Cost != nil:
		return nil, invalid("cost", "a function", "nil with NewAll and NewFirst, whose parts have the costs")
	}
	m, err := newMiddleware(opts)
	if err != nil {
		return nil, err
	}
	m.first = first
	begun := new(sync.Once)
	m.parts = func(r *http.Request, s *scratch) error {
		all, err := parts(r)
		s.parts = append(s.parts[:0], all...)
		//mutant:units-of-first-request
		if err == nil && len(all) > 0 && len(m.Units) > 0 {
			//mutant:units-warned-once
			begun.Do(func() { m.warnUnits(all) })
		}
		return err
	}
	return m.wrap, nil
}

// NewFirst returns a middleware that decides each request by the first part that has room, and
// charges no other; see headgate.First. So a request is taken from an allowance, and from bought
// credits once that is spent. All else is as NewAll has it. The fields, Outcome and Denial have the
// policies of the part that was charged, or that denies. If no store answers it is not known which
// part was charged. Then what a request has used is settled for each part by the names of the
// policies.
func NewFirst(parts func(*http.Request) ([]headgate.Part, error), opts *Options) (func(http.Handler) http.Handler, error) {
	return newParts(parts, opts, true)
}

// newMiddleware makes what New, NewAll and NewFirst share.
func newMiddleware(opts *Options) (*middleware, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	m := &middleware{Options: *opts, calls: settle.Calls{Lease: opts.Lease, Wait: opts.SettleWait}}
	if m.IPv6Prefix == 0 {
		m.IPv6Prefix = address.Prefix
	}
	if m.OnDenied == nil {
		m.OnDenied = func(w http.ResponseWriter, _ *http.Request, d Denial) { d.Write(w) }
	}
	if m.OnError == nil {
		m.OnError, m.serverLog = WriteError, true
	}
	if m.Delayed >= 0 {
		m.places = make(chan struct{}, cmp.Or(m.Delayed, 1000))
	}
	m.fields = newFields(opts)
	m.fields.kept = true
	m.scratch.New = func() any { return new(scratch) }
	return m, nil
}

// check comes before anything is made, so a middleware that exists is valid,
// and no request can find a mistake of the set-up.
func (o *Options) check() error {
	switch {
	case o.EmptyKey > EmptyPasses:
		return invalid("empty key", int(o.EmptyKey), "EmptyRefused, EmptyShared or EmptyPasses")
	case o.IPv6Prefix < 0 || o.IPv6Prefix > 128:
		return invalid("IPv6 prefix", o.IPv6Prefix, "1 to 128 bits, or 0 for 64")
	case o.RetryJitter < 0 || o.RetryJitter > time.Hour:
		return invalid("retry jitter", o.RetryJitter, "0 to 1h")
	}
	for _, unit := range o.Units {
		if !named(unit) {
			return invalid("unit", unit, "1 to 64 letters, digits, '-', '_' or '.'")
		}
	}
	return settle.Check(o.Lease, o.SettleWait, o.Settle != nil, o.Settled != nil)
}

// checkUnits refuses a name in Units that no policy of the limiter has.
func (o *Options) checkUnits(l *headgate.Limiter) error { return o.unitsOf(l.Policies(), nil) }

// unknownUnit is the line of a name in Units that may be misspelt.
const unknownUnit = "headgate: Units has the name of a policy that the first request does not have"

// warnUnits logs the error of a name in Units that no policy of the parts has, nor the policy
// file of their limiters. It is no error of the request: a plan may lack a policy on purpose.
func (o *Options) warnUnits(list []headgate.Part) {
	var policies []headgate.Policy
	for i := range list {
		policies = append(policies, list[i].Limiter.Policies()...)
	}
	if err := o.unitsOf(policies, list); err != nil {
		adapter.Of(list[0].Limiter).Logger().Warn(unknownUnit, "error", err)
	}
}

// unitsOf returns the error of the first name in Units that neither the policies nor the policy
// file of the parts' limiters have.
func (o *Options) unitsOf(policies []headgate.Policy, list []headgate.Part) error {
	var names []string
	for i := range policies {
		if name := policies[i].Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Units)) {
		//mutant:units-of-known-policies
		if !slices.Contains(names, name) && !parts.InFile(list, name) {
			return invalid("unit of policy", name, "one of "+strings.Join(names, ", "))
		}
	}
	return nil
}

// named reports whether a unit can stand in a field as it is.
func named(unit string) bool {
	for _, c := range []byte(unit) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return unit != "" && len(unit) <= 64
}
