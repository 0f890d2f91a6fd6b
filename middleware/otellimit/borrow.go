package otellimit

import (
	"context"
	"errors"
	"slices"

	"github.com/headgate-go/headgate"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// errBorrow is that of a second call of Metrics.Borrow.
var errBorrow = errors.New("otellimit: Borrow was called before")

// Borrow reports the sums of what limiters have borrowed, as Limiter.Stats has it, until
// Close. It is called once, with one of the limiters that headgate.New, With and OnFailure
// made of one store: they have common counts. It is not safe for concurrent use. An error
// is the provider's, or that of a second call. Of a nil or zero Metrics it does nothing.
func (m *Metrics) Borrow(limiters ...*headgate.Limiter) error {
	if m == nil || m.registration == nil {
		return nil
	}
	if m.borrows != nil {
		return errBorrow
	}
	limiters = slices.Clone(limiters)
	i := instruments{meter: m.meter}
	keys := i.gauge("headgate.borrow.keys", "{key}", "Keys of which this process has units, or had some a moment ago.")
	requests := i.total("headgate.borrow.requests", "{request}", "Requests that settled, lent or gave back units.")
	units := i.total("headgate.borrow.units", "{unit}", "Units that were lent to this process, and what became of them.")
	denials := i.total("headgate.borrow.denials", "{decision}", "Calls that were denied, and would have passed if no unit were lent.")
	if len(i.errs) > 0 {
		return errors.Join(i.errs...)
	}
	kind := func(name, value string) metric.MeasurementOption { return m.set(attribute.String(name, value)) }
	answered, lost := kind("headgate.result", "answered"), kind("headgate.result", "lost")
	lent, back, used := kind("headgate.units", "lent"), kind("headgate.units", "given_back"), kind("headgate.units", "used")
	r, err := i.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := headgate.Stats{}.Borrow
		for _, l := range limiters {
			b := l.Stats().Borrow
			s.Homes, s.Borrows, s.Lost, s.Denied = s.Homes+b.Homes, s.Borrows+b.Borrows, s.Lost+b.Lost, s.Denied+b.Denied
			s.Lent, s.GivenBack, s.Used = s.Lent+b.Lent, s.GivenBack+b.GivenBack, s.Used+b.Used
		}
		o.ObserveInt64(keys, int64(s.Homes), m.set())
		o.ObserveInt64(requests, s.Borrows-s.Lost, answered)
		o.ObserveInt64(requests, s.Lost, lost)
		o.ObserveInt64(units, s.Lent, lent)
		o.ObserveInt64(units, s.GivenBack, back)
		o.ObserveInt64(units, s.Used, used)
		o.ObserveInt64(denials, s.Denied, m.set())
		return nil
	}, keys, requests, units, denials)
	m.borrows = r
	return err
}
