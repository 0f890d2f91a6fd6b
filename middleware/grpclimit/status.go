package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/middleware/internal/parts"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// denied returns the delay and the error of a denial.
func denied(d headgate.Decision, list []headgate.Part) (time.Duration, error) {
	delay := wholeMillis(d.RetryAfter)
	retry := &errdetails.RetryInfo{RetryDelay: durationpb.New(delay)}
	if d.Source == headgate.FromFailClosed {
		return delay, with(codes.Unavailable, fmt.Sprintf("rate limit can't be counted: retry in %v", delay), retry)
	}
	quota := violations(list, func(s *headgate.State) bool { return s.RetryAfter > 0 })
	return delay, with(codes.ResourceExhausted, fmt.Sprintf("rate limit reached: retry in %v", delay), retry, quota)
}

// violations names the policies whose states are violated, never a shadow.
func violations(list []headgate.Part, violated func(*headgate.State) bool) *errdetails.QuotaFailure {
	quota := &errdetails.QuotaFailure{}
	for i := range list {
		policies, each := list[i].Limiter.Policies(), list[i].Call.Each
		for j := range policies {
			if j < len(each) && violated(&each[j]) && !policies[j].Shadow {
				quota.Violations = append(quota.Violations, violation(&policies[j]))
			}
		}
	}
	return quota
}

// failed returns the error of a call that was not decided, and logs one that the client
// can't read. Its text is for the client: it names no server and no key.
func (g *gate) failed(err error, list []headgate.Part) error {
	switch {
	case errors.Is(err, context.Canceled):
		return status.FromContextError(context.Canceled).Err()
	case errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(context.DeadlineExceeded).Err()
	case errors.Is(err, headgate.ErrClosed):
		return status.Error(codes.Unavailable, "rate limiter is closed")
	case errors.Is(err, headgate.ErrNeverAdmissible):
		quota := violations(list, func(*headgate.State) bool { return true })
		text := "the call costs more than its rate limit can grant: " + parts.CostText(err)
		return with(codes.InvalidArgument, strings.TrimSuffix(text, ": "), quota)
	}
	g.log(err, list)
	return status.Error(codes.Internal, "rate limit: the call can't be counted")
}

// log logs an error that the client can't read by the Logger of a limiter. Without one it
// uses that of gRPC, which prints errors unless the process sets another.
func (g *gate) log(err error, list []headgate.Part) {
	if !parts.Log(list, err) && g.pace.Due() {
		grpclog.Component("headgate").Errorf(parts.Uncounted+": %v", err)
	}
}

// RequestError is a call that can't be counted because of a value in it. Examples are a key
// that is too long, a negative cost, or equal keys of two parts for one count. It is
// INVALID_ARGUMENT for the client, and is logged by the limiter's Logger, at most once per
// second.
type RequestError = parts.RequestError

// keyFailed returns the error of a call whose key function failed.
func (g *gate) keyFailed(err error, list []headgate.Part) error {
	if s, ok := status.FromError(err); ok && s.Code() != codes.OK {
		return err
	}
	if errors.Is(err, headgate.ErrBlocked) {
		return status.Error(codes.PermissionDenied, "rate limit: the caller is blocked")
	}
	if errors.As(err, new(*RequestError)) {
		parts.Log(list, err)
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return g.failed(err, list)
}

// violation names the policy and its limit. Neither is secret: a client may
// plan by them.
func violation(p *headgate.Policy) *errdetails.QuotaFailure_Violation {
	return &errdetails.QuotaFailure_Violation{Subject: p.Name, Description: p.Algorithm.String()}
}

// with never loses the status for the sake of its details.
func with(code codes.Code, message string, details ...protoadapt.MessageV1) error {
	s, err := status.New(code, message).WithDetails(details...)
	if err != nil { // a detail that can't be marshaled; ours can
		return status.Error(code, message)
	}
	return s.Err()
}

// maxDelay is far below what a protobuf Duration and a Go Duration hold.
const maxDelay = 10_000 * time.Hour

// wholeMillis rounds up, so that a client that sleeps for it is never early.
func wholeMillis(d time.Duration) time.Duration {
	return (min(d, maxDelay) + time.Millisecond - 1).Truncate(time.Millisecond)
}

// RetryDelay returns the delay of the RetryInfo in err, and false where err is
// not RESOURCE_EXHAUSTED or UNAVAILABLE or has none. A negative delay is 0.
func RetryDelay(err error) (time.Duration, bool) {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.ResourceExhausted && s.Code() != codes.Unavailable {
		return 0, false
	}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return max(0, info.GetRetryDelay().AsDuration()), true
		}
	}
	return 0, false
}
