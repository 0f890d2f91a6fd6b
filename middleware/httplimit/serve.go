package httplimit

import (
	"context"
	"log"
	"net/http"
	"slices"
	"sync"

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
	fields  *fields
	calls   settle.Calls
	scratch sync.Pool // of *scratch

	serverLog bool // errors that no limiter can log go to the server's log: there is no OnError
	pace      parts.Pace
}

// scratch is what one request needs until it is decided. It goes back to the
// pool before the handler runs, which may take minutes.
type scratch struct {
	buf     []byte
	parts   []headgate.Part
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
	s.parts, s.members, s.texts = s.parts[:0], s.members[:0], s.texts[:0]
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
	if h.Settle != nil || s.leased() {
		settled, d, err = h.calls.Reserve(ctx, list)
	} else {
		err = decide(ctx, list, &d)
	}
	if err == nil && !d.Allowed && d.Err != nil && left(r) {
		err = context.Canceled
	}
	if err != nil {
		h.failed(w, r, list, err)
		return ctx, nil, false
	}
	s.write(h.fields, w.Header(), list, &d)
	if !d.Allowed {
		h.deny(w, r, list, d)
	}
	if settled != nil {
		ctx = settled.Context
	}
	return ctx, settled, d.Allowed
}

// list returns the parts that are to be decided, in the scratch's room.
func (m *middleware) list(r *http.Request, s *scratch) (list []headgate.Part, err error) {
	if err = m.parts(r, s); err != nil {
		return nil, err
	}
	for i := 0; i < len(s.parts); i++ {
		switch p := &s.parts[i]; {
		case p.Call.Key != "":
		case m.EmptyKey == EmptyRefused:
			return nil, errNoKey
		case m.EmptyKey == EmptyPasses:
			s.parts = slices.Delete(s.parts, i, i+1)
			i--
		default:
			p.Call.Key = emptyKey
		}
	}
	return parts.Ready(s.parts)
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
func decide(ctx context.Context, list []headgate.Part, d *headgate.Decision) (err error) {
	if len(list) > 1 {
		*d, err = headgate.All(ctx, list...)
	} else {
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
