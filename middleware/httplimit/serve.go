package httplimit

import (
	"context"
	"log"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/middleware/internal/parts"
	"github.com/headgate-go/headgate/middleware/internal/settle"
)

// A request is served in this order: Skip, the parts, the limiters, the client, the
// handler, the settlement. A client that left is noticed only where no store decided: a
// decision that was made should be seen in logs as what it is.

// middleware is what all requests of one New share. Only scratch, calls and pace are
// written after New.
type middleware struct {
	Options
	parts   func(*http.Request, *scratch) error // fills the scratch's list
	first   bool                                // of the parts one is charged
	fields  *fields
	calls   settle.Calls
	scratch sync.Pool     // of *scratch
	places  chan struct{} // of requests that are delayed; nil: none is

	serverLog bool // errors that no limiter can log go to the server's log: there is no OnError
	pace      parts.Pace
}

// scratch is what one request needs until it is decided. It goes back to the
// pool before the handler runs, which may take minutes.
type scratch struct {
	buf     []byte
	parts   []headgate.Part
	begins  []bool // of a First: which of them begin a part; else nil
	each    []headgate.State
	members []member
	texts   []*texts // of the parts' limiters, each of which is looked up once
}

// longestBuf is the largest buffer that is kept for the next request: one
// client with a huge header must not make all buffers huge.
const longestBuf = 4 << 10

func (m *middleware) release(s *scratch) {
	if cap(s.buf) > longestBuf {
		s.buf = nil
	}
	clear(s.parts) // or they would keep keys and limiters
	clear(s.members)
	clear(s.texts)
	s.parts, s.begins, s.members, s.texts = s.parts[:0], nil, s.members[:0], s.texts[:0]
	m.scratch.Put(s)
}

// handler is the middleware around one handler: a middleware may wrap many.
type handler struct {
	*middleware
	next  http.Handler
	marks parts.Marks
}

func (m *middleware) wrap(next http.Handler) http.Handler { return &handler{middleware: m, next: next} }

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, call, passes := h.admit(w, r)
	if !passes {
		return
	}
	if outer := r; ctx != r.Context() {
		r = r.WithContext(ctx)
		// The server removes the files of a form that it finds in its own request. Outer
		// handlers read the pattern there.
		//mutant:form-handed-back
		defer func() { outer.MultipartForm, outer.Pattern = r.MultipartForm, r.Pattern }()
	}
	if call != nil {
		h.run(w, r, call)
		return
	}
	h.next.ServeHTTP(w, r)
}

// admit reports whether the request passes, with its context and the call that is to be
// settled; nil is none. It has answered a request that does not pass.
func (h *handler) admit(w http.ResponseWriter, r *http.Request) (ctx context.Context, settled *settle.Call, passes bool) {
	ctx = r.Context()
	if h.Skip != nil && h.Skip(r) {
		return ctx, nil, true
	}
	s := h.scratch.Get().(*scratch)
	defer h.release(s)
	list, err := h.list(r, s)
	if err != nil {
		passes = h.undecided(w, r, s.parts, err)
		return ctx, nil, passes
	}
	if len(list) == 0 {
		return ctx, nil, true
	}
	ctx = h.marks.Meet(ctx, list)
	s.room(h.fields, list)
	var d headgate.Decision
	if settled, err = h.decide(ctx, s, list, &d); err == nil && !d.Allowed && d.Err != nil && left(r) {
		err = context.Canceled
	}
	if err != nil {
		h.failed(w, r, list, err)
		return ctx, nil, false
	}
	list = s.decided(list, d.At)
	s.write(h.fields, w.Header(), list, &d)
	if !d.Allowed {
		h.deny(w, r, list, d)
	}
	if settled != nil {
		ctx = settled.Context
	}
	return ctx, settled, d.Allowed
}

// decide decides by the parts, and delays what passes.
func (h *handler) decide(ctx context.Context, s *scratch, list []headgate.Part, d *headgate.Decision) (settled *settle.Call, err error) {
	if h.Settle != nil || s.leased() {
		settled, *d, err = h.calls.Reserve(ctx, list, s.begins)
	} else {
		err = decide(ctx, list, s.begins, d)
	}
	if err == nil && d.Delay > 0 && h.places != nil {
		err = h.delay(ctx, d, settled)
	}
	return settled, err
}

// delay waits for the Delay of a decision, or makes it a denial if too many wait. What does not
// go on is settled by nothing.
func (m *middleware) delay(ctx context.Context, d *headgate.Decision, settled *settle.Call) (err error) {
	select {
	case m.places <- struct{}{}:
		timer := time.NewTimer(d.Delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			err = ctx.Err()
		}
		timer.Stop()
		if <-m.places; err == nil {
			return nil
		}
	default:
		d.Allowed, d.RetryAfter = false, d.Delay
	}
	if settled != nil {
		settled.Settle(make([]int64, len(settled.Policies())))
	}
	return err
}

// list returns the parts that are to be decided, in the scratch's room.
func (m *middleware) list(r *http.Request, s *scratch) (list []headgate.Part, err error) {
	if err = m.parts(r, s); err != nil {
		return nil, err
	}
	if m.first {
		if s.parts, s.begins, err = parts.Flat(s.parts); err != nil {
			return nil, err
		}
	}
	for i := 0; i < len(s.parts); i++ {
		switch p := &s.parts[i]; {
		case p.Call.Key != "":
		case m.EmptyKey == EmptyRefused:
			return nil, errNoKey
		case m.EmptyKey == EmptyPasses:
			s.drop(i)
			i--
		default:
			p.Call.Key = emptyKey
		}
	}
	if m.first {
		return parts.ReadyFirst(s.parts, s.begins)
	}
	return parts.Ready(s.parts, m.Settle != nil)
}

// drop leaves out a key.
func (s *scratch) drop(i int) {
	if s.begins != nil {
		s.parts, s.begins = parts.Without(s.parts, s.begins, i)
	} else {
		s.parts = slices.Delete(s.parts, i, i+1)
	}
}

// decided returns the parts whose states the answer has: of a First those of the part that was
// charged, or that denies.
func (s *scratch) decided(list []headgate.Part, at int) []headgate.Part {
	if s.begins == nil {
		return list
	}
	from, to := parts.PartAt(s.begins, at)
	s.texts = slices.Delete(slices.Delete(s.texts, to, len(s.texts)), 0, from)
	return list[from:to]
}

// look looks up the texts of the parts' limiters.
func (s *scratch) look(f *fields, list []headgate.Part) {
	s.texts = s.texts[:0]
	for i := range list {
		s.texts = append(s.texts, f.texts(list[i].Limiter))
	}
}

// room gives each part room for its states, unless the caller has.
func (s *scratch) room(f *fields, list []headgate.Part) {
	s.look(f, list)
	n := 0
	for _, ts := range s.texts {
		n += len(ts.policies)
	}
	if cap(s.each) < n {
		s.each = make([]headgate.State, n)
	}
	each := s.each[:n]
	for i, ts := range s.texts {
		n := len(ts.policies)
		//mutant:states-of-the-caller
		if list[i].Call.Each == nil {
			list[i].Call.Each = each[:n:n]
		}
		each = each[n:]
	}
}

// leased reports whether a part can be charged by a reservation only.
func (s *scratch) leased() bool {
	return slices.ContainsFunc(s.texts, func(ts *texts) bool { return ts.leased })
}

// decide takes from the parts, and writes the answer in place: a Decision is large.
func decide(ctx context.Context, list []headgate.Part, begins []bool, d *headgate.Decision) (err error) {
	switch {
	case begins != nil:
		*d, err = headgate.First(ctx, parts.Nested(list, begins)...)
	case len(list) > 1:
		*d, err = headgate.All(ctx, list...)
	default:
		*d, err = list[0].Limiter.Do(ctx, list[0].Call)
	}
	return err
}

// undecided answers a request whose parts have an error, and reports whether it passes.
func (m *middleware) undecided(w http.ResponseWriter, r *http.Request, list []headgate.Part, err error) (passes bool) {
	if err == errUnmatched && m.EmptyKey == EmptyRefused { // the mux answers
		return true
	}
	m.failed(w, r, list, err)
	return false
}

// deny sets Retry-After before OnDenied, so that a function of the user's own
// sends it too. It is never 0, which clients take for "at once".
func (m *middleware) deny(w http.ResponseWriter, r *http.Request, list []headgate.Part, d headgate.Decision) {
	denial := NewDenial(d, list...)
	if d.Delay > 0 { // too many wait
		denial.Status = http.StatusServiceUnavailable
	}
	//mutant:violated-names
	denial.Violated = m.fields.violated(denial.Violated)
	w.Header()["Retry-After"] = []string{retryAfter(d, m.RetryJitter)}
	noStore(w.Header())
	m.OnDenied(w, r, denial)
}

// failed answers a request that was not decided. A client that left gets a
// status only for the logs.
func (m *middleware) failed(w http.ResponseWriter, r *http.Request, list []headgate.Part, err error) {
	if left(r) {
		if gone(r) {
			w.WriteHeader(statusClientLeft)
			return
		}
		err = headgate.ErrClosed // the server ends, and the client is there
	}
	m.log(r, list, err)
	noStore(w.Header())
	m.OnError(w, r, err)
}

// log logs an error of a value in the request, of the function that makes the parts, or of a
// limiter. If no limiter can log one that the service has to mend, and there is no OnError,
// it goes where net/http logs errors of handlers.
func (m *middleware) log(r *http.Request, list []headgate.Part, err error) {
	status := statusOf(err)
	//mutant:undecided-logged
	if status != http.StatusInternalServerError && (status != http.StatusBadRequest || err == errNoKey) {
		return
	}
	if parts.Log(list, err, "path", r.URL.Path) || !m.serverLog || status == http.StatusBadRequest || !m.pace.Due() {
		return
	}
	printServer(r, parts.Uncounted, err)
}

// printServer prints a line where net/http logs errors of handlers.
func printServer(r *http.Request, line string, err error) {
	logger := log.Default()
	if server, _ := r.Context().Value(http.ServerContextKey).(*http.Server); server != nil && server.ErrorLog != nil {
		logger = server.ErrorLog
	}
	logger.Print(line, ": ", err)
}

// warnServer is an asker's function without a limiter.
func warnServer(r *http.Request, err error) { printServer(r, noClient, err) }

// keyed fills the call of a Key that is no Func.
func (m *middleware) keyed(k *Key, by asker, r *http.Request, s *scratch, call *headgate.Call) (err error) {
	s.buf, err = k.add(s.buf[:0], r, by)
	switch {
	case err == nil:
		call.Key = string(s.buf)
	case err == errNoKey || err == errUnmatched && m.EmptyKey != EmptyRefused:
	default:
		return err
	}
	if m.Cost != nil {
		call.Costs = m.Cost(r)
	}
	return nil
}
