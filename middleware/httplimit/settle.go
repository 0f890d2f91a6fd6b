package httplimit

import (
	"context"
	"net/http"

	"github.com/headgate-go/headgate/middleware/internal/settle"
)

// Outcome is a request that has ended, for Options.Settle. Its fields may grow in
// number.
type Outcome struct {
	Request *http.Request // as the handler got it
	// Status is that of the response: 200 where the handler wrote none, 500 where it
	// panicked before it wrote one, 0 where the connection was hijacked before.
	Status   int
	Header   http.Header // of the response
	Written  int64       // bytes of the body; perhaps fewer than were sent where a copy to it panicked
	Panicked bool        // or the handler ended its goroutine
	Hijacked bool
	Estimate []int64 // what the request was charged: units, one per policy
	Reported []int64 // what the handler gave to Report; nil where it did not
}

// Report notes what a request has used, for the middleware that has Options.Settle:
// units, one per policy in the limiter's order. ctx is the context of the handler's
// request. The last report stands, and Outcome.Reported has it. Of two such middleware
// on one route it is for the inner one.
func Report(ctx context.Context, used ...int64) { settle.Report(ctx, used...) }

// Reported is a function for Options.Settle: a request has used what its handler gave
// to Report, and the estimate where it gave nothing.
func Reported(o *Outcome) []int64 { return o.Reported }

// run serves a request that is settled when the handler has returned, also by a panic
// or after it hijacked the connection.
func (h *handler) run(w http.ResponseWriter, r *http.Request, call *settle.Call) {
	r = r.WithContext(call.Context)
	if h.Settle == nil {
		defer call.Settle(nil)
		h.next.ServeHTTP(w, r)
		return
	}
	rec := &recorder{ResponseWriter: w}
	o := Outcome{Request: r, Header: w.Header(), Estimate: call.Estimate, Panicked: true}
	defer func() {
		var used []int64
		defer func() { call.Settle(used) }() // also where Settle panics: the estimate stands
		rec.fill(&o)
		o.Reported = call.Reported()
		used = h.Settle(&o)
	}()
	h.next.ServeHTTP(rec.writer(), r)
	o.Panicked = false
}
