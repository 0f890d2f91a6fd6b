package grpclimit

import (
	"context"
	"slices"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/middleware/internal/settle"
)

// Outcome is a call that has ended, for Options.Settle. Its fields may grow in number.
type Outcome struct {
	Context  context.Context // as the handler got it
	RPC      RPC
	Response any      // of a unary call; nil for a stream, and where the handler panicked
	Err      error    // what the handler returned
	Panicked bool     // or the handler ended its goroutine
	Policies []string // the name of the policy of each unit in Estimate and Reported
	Estimate []int64  // what the call was charged: units, one per policy
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

// Report notes what a call has used, for the Server that has Options.Settle: units, one
// per policy in the limiter's order. ReportPolicy takes a policy's name instead, so that
// the order does not matter. ctx is the handler's context. The last report stands, and
// Outcome.Reported has it. If it does not fit the policies the estimate stays, and the
// Logger of the first part's limiter gets the first such error. Of two such Servers in one
// chain it is for the inner one.
func Report(ctx context.Context, used ...int64) { settle.Report(ctx, used...) }

// Reserved returns the reservations of a call, one per part that was decided. ctx is the
// handler's context. The Server settles them: a handler stores their Tokens, so that another
// process settles them if this one dies. Of two Servers in one chain they are those of the
// inner one that reserves.
//
// It returns nil if no Server of the call reserves: none has Options.Settle or a policy of
// calls in flight. It is nil too for a call that passed without a decision, as by Skip,
// without parts or without a cost. So it is for any other context. Messages of a stream
// reserve nothing.
func Reserved(ctx context.Context) headgate.Reservations { return settle.Reserved(ctx) }

// ReportPolicy is Report for the policies of one name, in all parts. The other policies
// keep what was reported before, or the estimate. A name that no part of the call has
// reports nothing. The Logger of the first part's limiter gets the first such name, with
// the names that the call has. It is once per limiter, since a plan may lack the policy. A
// policy that the policy file has, and that does not apply to the call, has no line.
// Parts with names of their own are reported one by one.
func ReportPolicy(ctx context.Context, policy string, used int64) {
	settle.ReportPolicy(ctx, policy, used)
}

// Reported is a function for Options.Settle: a call has used what its handler gave to
// Report, and the estimate where it gave nothing.
func Reported(o *Outcome) []int64 { return o.Reported }

// settle settles a call. The states after it go to Options.Settled.
func (g *gate) settle(call *settle.Call, o *Outcome, used []int64) {
	if g.opts.Settled == nil {
		call.Settle(used)
		return
	}
	o.States = slices.Concat(call.SettleEach(used)...)
	g.opts.Settled(o)
}

// run calls the handler, and settles when it has returned, also by a panic.
func (g *gate) run(call *settle.Call, rpc RPC, handle func(context.Context) (any, error)) (resp any, err error) {
	o := Outcome{Context: call.Context, RPC: rpc, Policies: call.Policies(), Estimate: call.Estimate, Panicked: true, call: call}
	defer func() {
		var used []int64
		defer func() { g.settle(call, &o, used) }() // also where Settle panics: the estimate stands
		if g.opts.Settle != nil {
			o.Response, o.Err, o.Reported = resp, err, call.Reported()
			used = g.opts.Settle(&o)
		}
	}()
	resp, err = handle(call.Context)
	o.Panicked = false
	return resp, err
}
