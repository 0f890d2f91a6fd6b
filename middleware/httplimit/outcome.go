package httplimit

import (
	"context"
	"net/http"
	"slices"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/middleware/internal/settle"
)

// Outcome is a request that has ended, for Options.Settle. Its fields may grow in
// number.
type Outcome struct {
	Request *http.Request // as the handler got it
	// Status is that of the response, or what the handler gave to ReportStatus. It is 200
	// where it wrote none, 500 where it panicked before it wrote one, 0 where the
	// connection was hijacked before.
	Status   int
	Wrote    bool        // the handler has written a status or a body; false: something outside may still answer
	Header   http.Header // of the response
	Written  int64       // bytes of the body; perhaps fewer than were sent where a copy to it panicked
	Panicked bool        // or the handler ended its goroutine
	Hijacked bool
	Policies []string // the name of the policy of each unit in Estimate and Reported
	Estimate []int64  // what the request was charged: units, one per policy
	Reported []int64  // what the handler gave to Report or ReportPolicy; nil where it did not
	// States are those after the settlement, for Options.Settled: one per policy, shadow
	// policies too. nil: they are not known, and in Options.Settle.
	States []headgate.State

	call *settle.Call // nil: made by a test
}

// Units returns the estimate with n units for each policy of that name: what a Settle
// function returns that knows one number. A name that the call does not have changes
// nothing; see ReportPolicy.
func (o *Outcome) Units(policy string, n int64) []int64 {
	o.call.Has(policy)
	return settle.With(o.Estimate, o.Policies, policy, n)
}

// Report notes what a request has used, for the middleware that has Options.Settle:
// units, one per policy in the limiter's order, part after part. ReportPolicy takes a
// policy's name instead, so that the order does not matter. ctx is the context of
// the handler's request. The last report stands, and Outcome.Reported has it. If it does
// not fit the policies the estimate stays, and the Logger of the first part's limiter gets
// the first such error. Of two such middleware on one route it is for the inner one.
func Report(ctx context.Context, used ...int64) { settle.Report(ctx, used...) }

// ReportPolicy is Report for the policies of one name, in all parts. The other policies
// keep what was reported before, or the estimate. A name that no part of the call has
// reports nothing. The Logger of the first part's limiter gets the first such name, with
// the names that the call has. It is once per limiter, since a plan may lack the policy. A
// policy that the policy file has, and that does not apply to the request, has no line.
// Parts with names of their own are reported one by one.
func ReportPolicy(ctx context.Context, policy string, used int64) {
	settle.ReportPolicy(ctx, policy, used)
}

// ReportStatus notes the status of a response that is not written by the ResponseWriter
// that the middleware passed on, for adapters of frameworks. Outcome.Status has it.
func ReportStatus(ctx context.Context, status int) { settle.ReportStatus(ctx, status) }

// Reserved returns the reservations of a request, one per part that was decided. ctx is the
// context of the handler's request. The middleware settles them: a handler stores their
// Tokens, so that another process settles them if this one dies. Of two middlewares on one
// route they are those of the inner one that reserves.
//
// It returns nil if no middleware of the request reserves: none has Options.Settle or a
// policy of calls in flight. It is nil too for a request that passed without a decision, as
// by Skip, without parts or without a cost. So it is for any other context.
func Reserved(ctx context.Context) headgate.Reservations { return settle.Reserved(ctx) }

// Reported is a function for Options.Settle: a request has used what its handler gave
// to Report, and the estimate where it gave nothing.
func Reported(o *Outcome) []int64 { return o.Reported }

// run serves a request that is settled when the handler has returned, also by a panic
// or after it hijacked the connection.
func (h *handler) run(w http.ResponseWriter, r *http.Request, call *settle.Call) {
	if h.Settle == nil {
		defer call.Settle(nil)
		h.next.ServeHTTP(w, r)
		return
	}
	rec := &recorder{ResponseWriter: w, request: r}
	o := Outcome{Request: r, Header: w.Header(), Policies: call.Policies(), Estimate: call.Estimate, Panicked: true, call: call}
	defer func() {
		var used []int64
		defer func() { // also where Settle panics: the estimate stands
			h.settle(call, &o, used)
		}()
		rec.fill(&o, call.Status())
		o.Reported = call.Reported()
		used = h.Settle(&o)
	}()
	h.next.ServeHTTP(rec.writer(), r)
	o.Panicked = false
}

// settle settles a request. The states after it go to the header fields and to
// Options.Settled. They are not requested where nothing can show them.
func (h *handler) settle(call *settle.Call, o *Outcome, used []int64) {
	if h.Settled == nil && (o.Wrote || o.Hijacked) {
		call.Settle(used)
		return
	}
	each := call.SettleEach(used)
	//mutant:unknown-states-unused
	if each != nil {
		h.rewrite(o.Header, call.Parts, each)
	}
	if h.Settled != nil {
		o.States = slices.Concat(each...)
		h.Settled(o)
	}
}

// rewrite sets the fields once more, by the counts after the settlement. They stay where
// no store counts.
func (h *handler) rewrite(header http.Header, list []headgate.Part, each [][]headgate.State) {
	s := h.scratch.Get().(*scratch)
	defer h.release(s)
	s.parts = append(s.parts[:0], list...)
	s.look(h.fields, s.parts)
	for i := range s.parts {
		s.parts[i].Call.Each = each[i]
		for j := range each[i] {
			if !counted(&each[i][j]) {
				return
			}
		}
	}
	s.write(h.fields, header, s.parts, &headgate.Decision{Allowed: true, State: headgate.State{Known: backend.Exact}})
}
