// Package rls is Envoy's rate limit service, version 3, on limiters of Headgate.
//
// A request is decided in this order. A descriptor whose limit is 0 is over it. Hits
// that were used already (limits.ChargeAlways) are recorded, and descriptors with 0 hits
// are looked at. If a limit is exceeded by then, the other descriptors are only looked
// at. Else they are charged all or nothing.
package rls

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/cmd/headgated/internal/limits"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// Outcome is what became of a request, or of one of its descriptors.
type Outcome int

// The outcomes.
const (
	OK Outcome = iota
	OverLimit
	ShadowOverLimit // of a descriptor: a shadow or a quota that had no free units
	Undecided       // of a request: no store decided, and it was answered with an error
	Invalid         // of a request
	CallerLeft      // of a request: the caller's deadline had passed, or its connection was gone
	Outcomes        // their number
)

// Observer receives what became of requests and descriptors. It is safe for concurrent use.
type Observer interface {
	Request(Outcome)
	// Descriptor is called for each descriptor that has a limit. path is its place in the files,
	// and label adds the values of the request that the files ask for.
	Descriptor(path, label string, o Outcome)
	// Counted is called for each descriptor that has a limit, with its state after the request. That is OK,
	// OverLimit, ShadowOverLimit, or Undecided if no store decided it. Of an Undecided request that
	// is answered with an error all are.
	Counted(m *limits.Match, s *headgate.State, o Outcome)
	UnknownDomain()
	// Invalid is called for a request that is answered INVALID_ARGUMENT.
	Invalid(domain string, reason Reason, err error)
	// NegativeHits is called for each descriptor whose hits are negative. They are taken out of
	// what is counted, but if no limit of the descriptor counts what can be returned.
	NegativeHits(domain string, returned bool)
	// UnknownField is called for each field that a newer version of the protocol has, with how
	// often it stands in the request.
	UnknownField(message protoreflect.FullName, field protowire.Number, times int)
}

// Reason is why a request is invalid.
type Reason string

// The reasons.
const (
	NoDomain        Reason = "domain"
	NoDescriptor    Reason = "descriptors"
	ManyDescriptors Reason = "many_descriptors" // more than a request may have
	ManyCounts      Reason = "counts"           // more than a request may have
	BadOverride     Reason = "override"         // a limit of the request that no algorithm has
	BadJSON         Reason = "json"
	BadMessage      Reason = "message" // longer than a request may be, or none
	NoMethod        Reason = "method"  // of another version of the protocol
)

// Reasons are all of them.
var Reasons = [...]Reason{NoDomain, NoDescriptor, ManyDescriptors, ManyCounts, BadOverride, BadJSON, BadMessage, NoMethod}

// Options are the settings of a Service.
type Options struct {
	Config   func() *limits.Config // nil: none is loaded
	Observer Observer
	Budget   time.Duration // of one request, however many decisions it takes
	Headers  Headers
	Metadata bool // answer with dynamic metadata
	// ShadowMode answers OK to every request. The statuses are as they would be.
	ShadowMode bool
}

// Service implements rls.RateLimitServiceServer. Make one with New. It is safe for
// concurrent use.
type Service struct {
	rls.UnimplementedRateLimitServiceServer
	opts Options
}

// New returns a service.
func New(opts Options) *Service { return &Service{opts: opts} }

// ShouldRateLimit decides a request. The error is INVALID_ARGUMENT for a request that is
// none, UNAVAILABLE if no store decided and the limit's rule has no failure mode. It is
// DEADLINE_EXCEEDED or CANCELED if the caller has left.
func (s *Service) ShouldRateLimit(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	s.reportUnknown(req)
	resp, err := s.decide(ctx, req)
	if left := ctx.Err(); left != nil {
		s.opts.Observer.Request(CallerLeft)
		return nil, status.FromContextError(left).Err()
	}
	var invalid *invalidError
	switch {
	case errors.As(err, &invalid):
		s.opts.Observer.Request(Invalid)
		s.opts.Observer.Invalid(req.GetDomain(), invalid.reason, err)
		return nil, status.Error(codes.InvalidArgument, err.Error())
	case err != nil:
		s.opts.Observer.Request(Undecided)
		return nil, status.Error(codes.Unavailable, err.Error())
	case resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT:
		s.opts.Observer.Request(OverLimit)
	default:
		s.opts.Observer.Request(OK)
	}
	return resp, nil
}

// invalidError is why a request can't be decided.
type invalidError struct {
	reason Reason
	text   string
}

func (e *invalidError) Error() string { return "invalid request: " + e.text }

func invalid(reason Reason, format string, args ...any) error {
	return &invalidError{reason, fmt.Sprintf(format, args...)}
}

// maxParts is the number of counts that one request may have: that of headgate.All.
const maxParts = backend.MaxKeys

// maxDescriptors is the number of descriptors that one request may have. What a request costs
// grows with it, and not with its square.
const maxDescriptors = 1024

func (s *Service) decide(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	config := s.opts.Config()
	switch {
	case req.GetDomain() == "":
		return nil, invalid(NoDomain, "the domain is empty")
	case len(req.GetDescriptors()) == 0:
		return nil, invalid(NoDescriptor, "there is no descriptor")
	//mutant:descriptors-bounded
	case len(req.GetDescriptors()) > maxDescriptors:
		return nil, invalid(ManyDescriptors, "%d descriptors; want at most %d", len(req.GetDescriptors()), maxDescriptors)
	case config == nil:
		return nil, fmt.Errorf("%w: no configuration is loaded", headgate.ErrUnavailable)
	}
	if !config.Has(req.Domain) {
		s.opts.Observer.UnknownDomain()
	}
	c := calls.Get().(*call)
	c.service, c.req = s, req
	defer c.release()
	if err := c.resolve(config); err != nil {
		return nil, err
	}
	if err := c.run(ctx); err != nil {
		c.reportUndecided()
		return nil, err
	}
	return c.response(), nil
}
