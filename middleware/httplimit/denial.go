package httplimit

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/headgate-go/headgate"
)

// statusClientLeft is what logs show of a request whose client left before it
// was decided. The client does not receive it.
const statusClientLeft = 499

const problemTypes = "https://iana.org/assignments/http-problem-types#"

// The problem details (RFC 9457). The list of violated policies is appended to
// the first.
const (
	quotaProblem = `{"type":"` + problemTypes + `quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":[`
	capacityProblem = `{"type":"` + problemTypes + `temporary-reduced-capacity",` +
		`"title":"Request cannot be satisfied due to temporary server capacity constraints","status":503}`
	emptyProblem = `{"type":"about:blank","title":"Bad Request","status":400,` +
		`"detail":"the request lacks what its rate limit is counted by"}`
)

// Denial is a request that is denied. Its fields may grow in number.
type Denial struct {
	// Status is 429, or 503 where no store decided and the limiter failed closed.
	Status   int
	Decision headgate.Decision
	States   []headgate.State // one per policy, in the limiter's order, shadow policies too
	Violated []string         // names of the policies that deny, never of shadows; none with 503
}

// denial copies the states, which the next request will use again.
func (f *fields) denial(each []headgate.State, d headgate.Decision) Denial {
	denial := Denial{Status: deniedStatus(&d), Decision: d, States: slices.Clone(each)}
	if denial.Status != http.StatusTooManyRequests {
		return denial
	}
	for i := range each {
		if each[i].RetryAfter > 0 && f.names[i] != "" {
			denial.Violated = append(denial.Violated, each[i].Policy)
		}
	}
	return denial
}

// deniedStatus tells a quota that is spent from a store that did not count.
func deniedStatus(d *headgate.Decision) int {
	if d.Source == headgate.FromFailClosed {
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

// Write answers with the status and a body of type application/problem+json:
// quota-exceeded with the violated policies, or temporary-reduced-capacity. The
// status of a zero Denial is 429.
func (d Denial) Write(w http.ResponseWriter) {
	if d.Status == http.StatusServiceUnavailable {
		writeProblem(w, d.Status, []byte(capacityProblem))
		return
	}
	body := []byte(quotaProblem)
	for i, name := range d.Violated {
		if i > 0 {
			body = append(body, ',')
		}
		body = strconv.AppendQuote(body, name)
	}
	writeProblem(w, http.StatusTooManyRequests, append(body, "]}"...))
}

// WriteError answers a request that could not be decided. The status is 503
// where the store is closed or the request's deadline has passed. It is 403
// where the cost is more than a policy can ever grant, else 500. None has
// Retry-After or the fields of a decision, since there was none: the 503 of a
// policy that failed closed is a Denial. The error's text is not part of the
// answer.
func WriteError(w http.ResponseWriter, _ *http.Request, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, headgate.ErrNeverAdmissible):
		status = http.StatusForbidden
	case errors.Is(err, headgate.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		status = http.StatusServiceUnavailable
	}
	body := `{"type":"about:blank","title":"` + http.StatusText(status) + `","status":` + strconv.Itoa(status) + `}`
	writeProblem(w, status, []byte(body))
}

// writeProblem sets Content-Length, since the body is complete.
func writeProblem(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have left
}

// left reports whether the client left, as net/http tells by the context.
func left(r *http.Request) bool { return errors.Is(r.Context().Err(), context.Canceled) }
