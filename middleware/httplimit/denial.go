package httplimit

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/middleware/internal/parts"
)

// statusClientLeft is what logs show of a request whose client left before it
// was decided. The client does not receive it.
const statusClientLeft = 499

const problemTypes = "https://iana.org/assignments/http-problem-types#"

// The problem details (RFC 9457). The list of violated policies is appended to the first,
// and the detail to that of a cost.
const (
	quotaProblem = `{"type":"` + problemTypes + `quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":[`
	capacityProblem = `{"type":"` + problemTypes + `temporary-reduced-capacity",` +
		`"title":"Request cannot be satisfied due to temporary server capacity constraints","status":503}`
	emptyProblem = `{"type":"about:blank","title":"Bad Request","status":400,` +
		`"detail":"the request lacks what its rate limit is counted by"}`
	costProblem = `{"type":"` + errorTypes + `ErrNeverAdmissible",` +
		`"title":"Request costs more than its quota can ever grant","status":403`
	blockedProblem = `{"type":"` + errorTypes + `ErrBlocked",` +
		`"title":"Requests of this client are blocked","status":403}`
)

// errorTypes is the documentation of the errors that have a type of problem of their own.
const errorTypes = "https://pkg.go.dev/github.com/headgate-go/headgate#"

// RequestError is a request that can't be counted because of a value in it. It has no
// key, one that is too long or given several times, or a negative cost. With NewAll it has
// equal keys for one count, or more than 64 parts. Its answer is 400, which
// Options.OnError can change. It is logged by the limiter's Logger, at most once per
// second; a request without a key is not.
type RequestError = parts.RequestError

// errNoKey is a request that has no key.
var errNoKey = &RequestError{What: "key", Text: "is missing"}

// errUnmatched is a request that no pattern of the mux matches.
var errUnmatched = &RequestError{What: "pattern", Text: "is missing: the mux matches none"}

// several is a value that the request has several times. Which of them another reader
// takes is unknown.
func several(what string) error { return &RequestError{What: what, Text: "is given several times"} }

// Denial is a request that is denied. Its fields may grow in number.
type Denial struct {
	// Status is 429, or 503 where no store decided and the limiter failed closed.
	Status   int
	Decision headgate.Decision
	States   []headgate.State // one per policy, in the limiter's order and part after part, shadow policies too
	// Violated has the names of the policies that deny, never of shadows; none with 503. A denial
	// from memory (headgate.FromDenyCache) of several keys names only those of the keys that are
	// known to be spent.
	Violated []string
}

// NewDenial returns the denial that a decision of the parts is. The states are those of
// each part's Call.Each.
func NewDenial(d headgate.Decision, list ...headgate.Part) Denial {
	denial := Denial{Status: http.StatusTooManyRequests, Decision: d}
	if d.Source == headgate.FromFailClosed { // no quota is spent: the store did not count
		denial.Status = http.StatusServiceUnavailable
	}
	var none fields
	for i := range list {
		each := list[i].Call.Each
		denial.States = append(denial.States, each...)
		for j, t := range none.texts(list[i].Limiter).policies {
			if denial.Status == http.StatusTooManyRequests && j < len(each) && each[j].RetryAfter > 0 && t.name != "" &&
				!slices.Contains(denial.Violated, each[j].Policy) {
				denial.Violated = append(denial.Violated, each[j].Policy)
			}
		}
	}
	return denial
}

// name returns the name that clients get of a policy, "" for none.
func (f *fields) name(policy string) string {
	if f.names == nil {
		return policy
	}
	name := f.names(policy)
	//mutant:name-fits-a-field
	if !named(name) {
		return ""
	}
	return name
}

// violated returns the names that clients get of policies, each once.
func (f *fields) violated(policies []string) (names []string) {
	for _, p := range policies {
		if name := f.name(p); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Write answers with the status and a body of type application/problem+json:
// quota-exceeded with the violated policies, or temporary-reduced-capacity. The
// status of a zero Denial is 429.
func (d Denial) Write(w http.ResponseWriter) {
	status, body := d.Problem()
	writeProblem(w, status, body)
}

// Problem returns the status and the body that Write sends, for a framework that has
// its own way to answer. The body's type is application/problem+json.
func (d Denial) Problem() (status int, body []byte) {
	if d.Status == http.StatusServiceUnavailable {
		return d.Status, []byte(capacityProblem)
	}
	body = []byte(quotaProblem)
	for i, name := range d.Violated {
		if i > 0 {
			body = append(body, ',')
		}
		body = strconv.AppendQuote(body, name)
	}
	return http.StatusTooManyRequests, append(body, "]}"...)
}

// WriteError answers a request that could not be decided. The status is 400 for a
// *RequestError, or for a key that is empty or too long. It is 503 where the store is closed
// or the request's deadline has passed. It is 403 where the cost is more than a policy can
// ever grant, or the key is blocked, else 500. None has Retry-After or the fields of a
// decision, since there was none: the 503 of a policy that failed closed is a Denial.
//
// The two 403 differ in the type of the problem, which ends in ErrNeverAdmissible or
// ErrBlocked. A request that costs less may pass after the first, and none after the other.
// The detail of the first has the cost, the policy and the greatest cost that it admits. It is
// empty if the error has no *headgate.InvalidError of a cost. The text of no other error is
// part of the answer. The type of all others is about:blank.
func WriteError(w http.ResponseWriter, _ *http.Request, err error) {
	status := statusOf(err)
	writeProblem(w, status, []byte(problemOf(err, status)))
}

// problemOf returns the problem of a request that could not be decided.
func problemOf(err error, status int) string {
	switch {
	case err == errNoKey:
		return emptyProblem
	//mutant:blocked-has-its-type
	case status == http.StatusForbidden && errors.Is(err, headgate.ErrBlocked):
		return blockedProblem
	case status == http.StatusForbidden:
		detail, _ := json.Marshal(parts.CostText(err)) // a string has JSON
		return costProblem + `,"detail":` + string(detail) + "}"
	}
	return `{"type":"about:blank","title":"` + http.StatusText(status) + `","status":` + strconv.Itoa(status) + `}`
}

// statusOf returns the status of a request that could not be decided.
func statusOf(err error) int {
	var invalid *headgate.InvalidError
	switch {
	case errors.As(err, new(*RequestError)), errors.As(err, &invalid) && invalid.What == "key":
		return http.StatusBadRequest
	case errors.Is(err, headgate.ErrNeverAdmissible), errors.Is(err, headgate.ErrBlocked):
		return http.StatusForbidden
	case errors.Is(err, headgate.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// writeProblem removes what an outer handler has set for its own answer. Content-Encoding
// stays, as in http.Error: an outer handler may compress what is written. It sets no
// Content-Length, which such a handler would have to correct.
func writeProblem(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	for _, name := range []string{"Content-Length", "Etag", "Last-Modified"} {
		h.Del(name)
	}
	noStore(h)
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have left
}

// noStore is set before OnDenied and OnError too, for answers of the user's own.
func noStore(h http.Header) {
	//mutant:denials-not-cached
	h.Set("Cache-Control", "no-store")
}

// left reports whether the request's context was cancelled: the client left, or the
// server's own context has ended.
func left(r *http.Request) bool { return errors.Is(r.Context().Err(), context.Canceled) }

// gone reports whether the client left. The context of a request also ends with that of
// http.Server.BaseContext, and then the client is there.
func gone(r *http.Request) (yes bool) {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil || server.BaseContext == nil {
		return true
	}
	defer func() { // of a function that wants its listener
		if recover() != nil {
			yes = true
		}
	}()
	base := server.BaseContext(noListener{})
	return base == nil || base.Err() == nil
}

// noListener is a listener that a BaseContext may be asked for again.
type noListener struct{ net.Listener }

func (noListener) Addr() net.Addr { return &net.TCPAddr{} }
