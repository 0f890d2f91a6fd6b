package otellimit

import (
	"context"
	"errors"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"go.opentelemetry.io/otel/attribute"
)

// outcome is what distinguishes decisions. It is small, since it is looked up
// on the path of each call.
type outcome struct {
	policy  string // "" where none binds
	op      backend.Op
	source  headgate.Source // of a decision
	result  result
	failure failure
}

// result is a value of headgate.result.
type result uint8

const (
	allowed result = iota
	denied
	done
	failed
)

var results = [...]string{"allowed", "denied", "done", "error"}

// failure is a value of error.type.
type failure uint8

const (
	none failure = iota
	corrupt
	perhapsCounted
	closed
	neverAdmissible
	unavailable
	canceled
	deadlineExceeded
	invalid
	notHeld
	leaseEnded
	held
	unsupported
	anyOther
)

var failures = [...]string{
	"", "corrupt", "perhaps_counted", "closed", "never_admissible", "unavailable", "canceled", "deadline_exceeded",
	"invalid", "not_held", "lease_ended", "held", "unsupported", other,
}

// other is the value of an attribute that has too many, as OpenTelemetry's
// conventions name it.
const other = "_OTHER"

// outcomeOf leaves the source of a call that returned an error at its zero
// value, which attributes does not report: no store decided it.
func outcomeOf(e *headgate.Event, policy string) outcome {
	o := outcome{policy: policy, op: e.Op}
	switch {
	case e.Err != nil:
		o.result, o.failure = failed, failureOf(e.Err)
		return o
	case !e.Op.Decides():
		o.result = done
		return o
	case !e.Decision.Allowed:
		o.result = denied
	}
	o.source, o.failure = e.Decision.Source, failureOf(e.Decision.Err)
	return o
}

// shadowOf returns the outcome of the shadow policies, and false if they decided nothing. A
// call that is denied has none: what they say of it depends on where it was denied.
func shadowOf(e *headgate.Event) (shadow headgate.Event, ok bool) {
	//mutant:shadow-of-passed-calls
	if e.Shadow == nil || !e.Decision.Allowed || e.Err != nil || !e.Op.Decides() {
		return shadow, false
	}
	return headgate.Event{Op: e.Op, Decision: *e.Shadow}, true
}

// failureOf returns the class of an error that a call returned, or that kept the
// store from deciding. An error may match several: the most telling come first.
func failureOf(err error) failure {
	if err == nil {
		return none
	}
	switch {
	case errors.As(err, new(*headgate.CorruptError)):
		return corrupt
	case errors.Is(err, headgate.ErrPerhapsCounted):
		return perhapsCounted
	case errors.Is(err, headgate.ErrClosed):
		return closed
	case errors.Is(err, headgate.ErrNeverAdmissible):
		return neverAdmissible
	case errors.Is(err, headgate.ErrUnavailable):
		return unavailable
	case errors.Is(err, context.Canceled):
		return canceled
	case errors.Is(err, context.DeadlineExceeded):
		return deadlineExceeded
	case errors.As(err, new(*headgate.InvalidError)):
		return invalid
	case errors.Is(err, headgate.ErrNotHeld):
		return notHeld
	case errors.Is(err, headgate.ErrLeaseEnded):
		return leaseEnded
	case errors.Is(err, backend.ErrHeld):
		return held
	case errors.Is(err, headgate.ErrUnsupported):
		return unsupported
	}
	return anyOther
}

// attributes are those of the decision.
func (o outcome) attributes() []attribute.KeyValue {
	all := append(o.storeAttributes(), attribute.String("headgate.result", results[o.result]))
	if o.policy != "" {
		all = append(all, attribute.String("headgate.policy", o.policy))
	}
	if o.result == allowed || o.result == denied {
		all = append(all, attribute.String("headgate.source", o.source.String()))
	}
	return all
}

// storeAttributes are those of the time at the store.
func (o outcome) storeAttributes() []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String("headgate.operation", o.op.String())}
	if o.failure != none {
		all = append(all, attribute.String("error.type", failures[o.failure]))
	}
	return all
}
