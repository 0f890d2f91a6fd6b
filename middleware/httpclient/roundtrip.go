package httpclient

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/middleware/internal/field"
)

// call is one RoundTrip, with all that it sends. It is used by one goroutine.
type call struct {
	t    *Transport
	s    *scope
	last time.Time // no wait may end later

	denied bool // the response to the request that was sent last denies
}

// late reports whether a wait would end too late.
func (c *call) late(wait time.Duration) bool { return wait > 0 && time.Until(c.last) < wait }

// admit waits until the request may be sent. Where it may not, it returns the
// response or the error of the RoundTrip. The order matters: a denial in force
// is answered before the queue, where it would wait behind others in vain. The
// shared limiter comes after the queue, so that its unit is taken by the
// request that is sent next. Each response may change what is waited for, so
// the loop asks anew after each.
func (c *call) admit(r *http.Request) (k ticket, resp *http.Response, err error) {
	now := time.Now()
	if wait, status := c.s.held(now); c.late(wait) {
		return k, denial(r, status, wait), nil
	}
	if !c.late(c.s.wait(now)) { // else it is sent at once, past those that can wait
		release, err := c.queue(r.Context())
		if err != nil {
			return k, nil, err
		}
		defer release()
	}
	if resp, err = c.share(r); resp != nil || err != nil {
		return k, resp, err
	}
	for force := false; ; {
		now := time.Now()
		if wait, status := c.s.held(now); c.late(wait) {
			return k, denial(r, status, wait), nil
		}
		k, wait, changed := c.s.start(now, force)
		rest := c.last.Sub(now)
		switch {
		case changed == nil:
			return k, nil, nil
		//mutant:forced-once
		case wait > rest && !force:
			force = true
			continue
		}
		if err := sleep(r.Context(), min(wait, rest), changed); err != nil { // of a probe that hangs, no more
			return k, nil, err
		}
		force = false
	}
}

// queue waits until it is the request's turn, or no wait is left.
func (c *call) queue(ctx context.Context) (release func(), err error) {
	release = func() { <-c.s.turn }
	select {
	case c.s.turn <- struct{}{}:
		return release, nil
	default:
	}
	timer := time.NewTimer(time.Until(c.last))
	defer timer.Stop()
	select {
	case c.s.turn <- struct{}{}:
		return release, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return func() {}, nil
	}
}

// share waits until the shared limiter lets the request pass. What holds it back since
// it was queued is answered first: a request that is not sent takes no unit. The
// least wait is a millisecond, or a failure mode without a RetryAfter would make a loop.
func (c *call) share(r *http.Request) (*http.Response, error) {
	if c.t.Limiter == nil {
		return nil, nil
	}
	for {
		//mutant:held-takes-no-unit
		if wait, status := c.s.held(time.Now()); c.late(wait) {
			return denial(r, status, wait), nil
		}
		d, err := c.t.Limiter.Allow(r.Context(), c.t.Key)
		if err != nil || d.Allowed {
			return nil, err
		}
		if c.late(d.RetryAfter) {
			return denial(r, status(&d), d.RetryAfter), nil
		}
		if err := sleep(r.Context(), max(d.RetryAfter, time.Millisecond), nil); err != nil {
			return nil, err
		}
	}
}

// status returns the status of a request that the shared limiter denies: 503 if no
// store decided.
func status(d *headgate.Decision) int {
	if d.Source == headgate.FromFailClosed {
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

// send sends the request with the base. It finishes the ticket even if the base panics,
// since other requests wait for the end of a probe.
func (c *call) send(k ticket, r *http.Request) (resp *http.Response, err error) {
	defer func() { c.denied = c.s.finish(k, resp, time.Now(), c.t.Limiter == nil) }()
	return c.t.base().RoundTrip(r)
}

// again returns the request to send after a denial; nil where the response is
// the caller's.
func (c *call) again(r *http.Request, resp *http.Response) *http.Request {
	refused := refused(resp.StatusCode)
	overloaded := resp.StatusCode >= 500
	//mutant:other-4xx-not-sent-again
	if !c.denied || !refused && !(overloaded && repeatable(r)) {
		return nil
	}
	if wait, _ := c.s.denied(time.Now()); wait <= 0 || c.late(wait) {
		return nil
	}
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	if r.GetBody == nil {
		return nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil
	}
	next := r.WithContext(r.Context()) // a shallow copy
	next.Body = body
	return next
}

// repeatable reports whether a request that may have been carried out can be
// sent again, by the same rule as net/http.
func repeatable(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return r.Header.Get("Idempotency-Key") != "" || r.Header.Get("X-Idempotency-Key") != ""
}

// denial makes the response to a request that was not sent. It has the form of
// a server's, so a caller handles both alike; the body tells which it is.
func denial(r *http.Request, status int, wait time.Duration) *http.Response {
	text := http.StatusText(status)
	body := `{"type":"about:blank","title":"` + text + `","status":` + strconv.Itoa(status) +
		`,"detail":"held back by the client, not sent: no time is left for the wait"}`
	return &http.Response{
		Status:     strconv.Itoa(status) + " " + text,
		StatusCode: status,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Content-Type": {"application/problem+json"},
			"Retry-After":  {strconv.FormatInt(max(1, field.Seconds(wait)), 10)},
		},
		Body:          io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       r,
	}
}

// discard reads the rest of a short body, so that its connection is used again. A
// server that stalls in it is not waited for. An http.Client takes a response without a
// body, as a test double returns, and so does the Transport.
func discard(resp *http.Response) {
	//mutant:no-body-discarded
	if resp.Body == nil {
		return
	}
	const short, soon = 64 << 10, 50 * time.Millisecond
	stalled := time.AfterFunc(soon, func() { _ = resp.Body.Close() })
	defer stalled.Stop()
	_, _ = io.CopyN(io.Discard, resp.Body, short)
	_ = resp.Body.Close()
}

// closeBody closes the body of a request that is not sent, as a RoundTripper
// must.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// sleep returns when the time has passed or a response came, or the context's
// error.
func sleep(ctx context.Context, wait time.Duration, changed <-chan struct{}) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
