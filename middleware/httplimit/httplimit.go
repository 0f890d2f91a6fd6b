package httplimit

import (
	"net/http"
	"sync"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/middleware/internal/field"
	"github.com/headgate-go/headgate/middleware/internal/settle"
)

// Options are the settings of the middleware; nil is the same as the zero
// Options. The functions must be safe for concurrent use.
type Options struct {
	// Cost returns what a request costs: one number of units per policy, in the
	// limiter's order. nil, also as the result, is 1 of each. With Func the call
	// has the costs, and Cost must be nil.
	Cost func(*http.Request) []int64
	// EmptyKey is what a request without a key gets; EmptyRefused where it is not
	// set.
	EmptyKey EmptyKey
	// IPv6Prefix is the number of bits that IPv6 addresses count by, 1 to 128;
	// 0 is 64.
	IPv6Prefix int
	// Skip reports the requests that pass without being counted, as health
	// checks and CORS preflights; nil is none.
	Skip func(*http.Request) bool
	// OnDenied answers a request that is denied, with all headers set; nil is
	// Denial.Write.
	OnDenied func(http.ResponseWriter, *http.Request, Denial)
	// OnError answers a request that could not be decided, by the error of the
	// key's function or of the limiter; nil is WriteError. It is not called for
	// a client that left.
	OnError func(http.ResponseWriter, *http.Request, error)
	// RetryJitter is how much later than needed Retry-After may be, at random
	// and in whole seconds: 0 to 1 h. Clients that were denied together then do
	// not return together.
	RetryJitter time.Duration
	// XRateLimit adds X-RateLimit-Limit, -Remaining and -Reset (in seconds from
	// now) of the binding policy, for clients that do not read RateLimit.
	XRateLimit bool
	// Settle makes each request a reservation of its cost, and returns what the request
	// has used, once its handler has returned, panicked or hijacked the connection: one
	// number of units per policy, in the limiter's order. Less than the cost gives the
	// rest back, more is charged above the limit. nil, or a list that does not fit the
	// policies, leaves the cost as it is. The function nil settles nothing but slots of
	// algo.InFlight.
	//
	// The response ends when the store has answered, or 50 ms later; the settlement goes
	// on for at most 10 s, also where the client has left. One that fails changes nothing
	// for the client: the cost is charged until it has aged, and a slot is taken until
	// the lease ends. Observers of the limiter see the error.
	Settle func(*Outcome) []int64
	// SettleWait is how long a request that is denied waits while others of its key in
	// this process are not settled yet, 0 to 1 min: their cost may be given back.
	// Waiting requests pass in the order of their arrival. 0 denies at once.
	SettleWait time.Duration
	// Lease is the length of a reservation's lease, 1 s to 24 h, extended while the
	// handler runs; 0 is headgate.DefaultLease. It is how long a slot stays taken where
	// the process dies.
	Lease time.Duration
	// ExposeHeaders lets scripts of other origins read the fields, by
	// Access-Control-Expose-Headers.
	ExposeHeaders bool
}

// EmptyKey is what a request gets that has no key: the header is missing, no
// pattern matches, the connection has no IP address.
type EmptyKey uint8

// The choices for a request without a key.
const (
	EmptyRefused EmptyKey = iota // status 400; nothing is counted
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
// and hands the ResponseWriter on as it is. Of two on one route each adds its
// own policies to RateLimit and RateLimit-Policy. A name stands there once: a
// policy of the inner one replaces one of an equal name.
func New(limiter *headgate.Limiter, key Key, opts *Options) (func(http.Handler) http.Handler, error) {
	if opts == nil {
		opts = &Options{}
	}
	if limiter == nil || len(limiter.Policies()) == 0 {
		return nil, invalid("limiter", "nil or zero", "one that headgate.New returned")
	}
	if err := check(key, opts); err != nil {
		return nil, err
	}
	m := &middleware{limiter: limiter, key: key, Options: *opts, fields: newFields(limiter.Policies(), opts)}
	if m.Settle != nil || settle.Needed(limiter) {
		m.calls = &settle.Calls{Limiter: limiter, Lease: m.Lease, Wait: m.SettleWait}
	}
	if m.IPv6Prefix == 0 {
		m.IPv6Prefix = defaultIPv6Prefix
	}
	if m.OnDenied == nil {
		m.OnDenied = func(w http.ResponseWriter, _ *http.Request, d Denial) { d.Write(w) }
	}
	if m.OnError == nil {
		m.OnError = WriteError
	}
	m.scratch.New = func() any { return &scratch{each: make([]headgate.State, len(m.fields.names))} }
	return func(next http.Handler) http.Handler { return &handler{m, next} }, nil
}

// check comes before anything is made, so a middleware that exists is valid,
// and no request can find a mistake of the set-up.
func check(key Key, opts *Options) error {
	switch {
	case key.err != nil:
		return key.err
	case key.add == nil && key.call == nil:
		return invalid("key", "Key{}", "one made by a function of package httplimit, as RemoteAddr")
	case key.call != nil && opts.Cost != nil:
		return invalid("cost", "a function", "nil with Func, whose call has the costs")
	case opts.EmptyKey > EmptyPasses:
		return invalid("empty key", int(opts.EmptyKey), "EmptyRefused, EmptyShared or EmptyPasses")
	case opts.IPv6Prefix < 0 || opts.IPv6Prefix > 128:
		return invalid("IPv6 prefix", opts.IPv6Prefix, "1 to 128 bits, or 0 for 64")
	case opts.RetryJitter < 0 || opts.RetryJitter > time.Hour:
		return invalid("retry jitter", opts.RetryJitter, "0 to 1h")
	}
	return settle.Check(opts.Lease, opts.SettleWait, opts.Settle != nil)
}

// middleware is what all requests of one New share. Only scratch is written
// after New.
type middleware struct {
	Options
	limiter *headgate.Limiter
	key     Key
	fields  *fields
	calls   *settle.Calls // nil: no request is settled
	scratch sync.Pool     // of *scratch
}

// scratch is what one request needs until it is decided. It goes back to the
// pool before the handler runs, which may take minutes.
type scratch struct {
	buf  []byte
	each []headgate.State
}

// longestBuf is the largest buffer that is kept for the next request: one
// client with a huge header must not make all buffers huge.
const longestBuf = 4 << 10

func (m *middleware) release(s *scratch) {
	if cap(s.buf) > longestBuf {
		s.buf = nil
	}
	m.scratch.Put(s)
}

// handler is the middleware around one handler: a middleware may wrap many.
type handler struct {
	*middleware
	next http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch call, passes := h.admit(w, r); {
	case !passes:
	case call != nil:
		h.run(w, r, call)
	default:
		h.next.ServeHTTP(w, r)
	}
}

// admit reports whether the request passes, with the call that is to be settled; nil
// is none. It has answered a request that does not pass.
// The order is: Skip, the key, the limiter, then the client. A client that left
// is noticed only where no store decided. A decision that was made should be
// seen in logs as what it is.
func (m *middleware) admit(w http.ResponseWriter, r *http.Request) (settled *settle.Call, passes bool) {
	if m.Skip != nil && m.Skip(r) {
		return nil, true
	}
	s := m.scratch.Get().(*scratch)
	defer m.release(s)
	call, err := m.call(r, s)
	if err != nil {
		m.failed(w, r, err)
		return nil, false
	}
	if call.Key == "" {
		if m.EmptyKey != EmptyShared {
			return nil, m.empty(w, r)
		}
		call.Key = emptyKey
	}
	call.Each = s.each
	settled, d, err := m.decide(r, call)
	if err != nil {
		m.failed(w, r, err)
		return nil, false
	}
	if !d.Allowed && d.Err != nil && left(r) {
		w.WriteHeader(statusClientLeft)
		return nil, false
	}
	s.buf = m.fields.write(w.Header(), s.buf[:0], s.each, &d)
	if !d.Allowed {
		m.deny(w, r, s.each, d)
	}
	return settled, d.Allowed
}

// decide asks the limiter, by a reservation where the request is settled.
func (m *middleware) decide(r *http.Request, call headgate.Call) (*settle.Call, headgate.Decision, error) {
	if m.calls != nil {
		return m.calls.Reserve(r.Context(), call)
	}
	d, err := m.limiter.Do(r.Context(), call)
	return nil, d, err
}

// call returns what the limiter is asked; an empty key where the request has
// none.
func (m *middleware) call(r *http.Request, s *scratch) (headgate.Call, error) {
	if m.key.call != nil {
		return m.key.call(r)
	}
	var call headgate.Call
	var ok bool
	if s.buf, ok = m.key.add(s.buf[:0], r, m.IPv6Prefix); ok {
		call.Key = string(s.buf)
	}
	if m.Cost != nil {
		call.Costs = m.Cost(r)
	}
	return call, nil
}

// empty answers a request without a key, and reports whether it passes.
func (m *middleware) empty(w http.ResponseWriter, _ *http.Request) bool {
	if m.EmptyKey == EmptyPasses {
		return true
	}
	writeProblem(w, http.StatusBadRequest, []byte(emptyProblem))
	return false
}

// deny sets Retry-After before OnDenied, so that a function of the user's own
// sends it too. It is never 0, which clients take for "at once".
func (m *middleware) deny(w http.ResponseWriter, r *http.Request, each []headgate.State, d headgate.Decision) {
	denial := m.fields.denial(each, d)
	retry := field.Seconds(d.RetryAfter) + jitter(m.RetryJitter)
	w.Header()["Retry-After"] = []string{itoa(max(1, retry))}
	m.OnDenied(w, r, denial)
}

// failed answers a request that was not decided. A client that left gets a
// status for the logs alone.
func (m *middleware) failed(w http.ResponseWriter, r *http.Request, err error) {
	if left(r) {
		w.WriteHeader(statusClientLeft)
		return
	}
	m.OnError(w, r, err)
}
