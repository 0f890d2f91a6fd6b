package rls_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/cmd/headgated/internal/limits"
	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

var ctx = context.Background()

const file = `
domain: d
descriptors:
  - {key: three, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: ten, rate_limit: {unit: hour, requests_per_unit: 10, name: ten}}
  - {key: admitted, rate_limit: {unit: hour, requests_per_unit: 10, charge: admitted}}
  - {key: named, rate_limit: {unit: hour, requests_per_unit: 100000, name: named}}
  - {key: many, rate_limit: {unit: hour, requests_per_unit: 100000, replaces: [{name: ten}]}}
  - {key: zero, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: other, rate_limit: {unit: hour, requests_per_unit: 10, replaces: [{name: ten}]}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: quota3, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: open, rate_limit: {unit: hour, requests_per_unit: 5, on_failure: open}}
  - {key: closed, rate_limit: {unit: hour, requests_per_unit: 5, on_failure: closed}}
  - {key: gold, rate_limit: {unit: hour, requests_per_unit: 5}, metadata: {plan: gold}}
`

// shadowed reads the file as -shadow does.
func shadowed(o *limits.Options) { o.Shadow = true }

// counter is an Observer.
type counter struct {
	sync.Mutex
	requests    map[rls.Outcome]int
	descriptors map[string]int
	unknown     int
	noted       []string // what is not served as its sender means it
	fields      int      // that are unknown
}

func (c *counter) Request(o rls.Outcome) {
	c.Lock()
	defer c.Unlock()
	c.requests[o]++
}

func (c *counter) Descriptor(_, label string, o rls.Outcome) {
	c.Lock()
	defer c.Unlock()
	c.descriptors[label+map[rls.Outcome]string{rls.OverLimit: " over", rls.ShadowOverLimit: " shadow"}[o]]++
}

func (c *counter) Counted(*limits.Match, *headgate.State, rls.Outcome) {}

func (c *counter) UnknownDomain() { c.unknown++ }

func (c *counter) Invalid(_ string, reason rls.Reason, _ error) { c.note("invalid " + string(reason)) }
func (c *counter) NegativeHits(domain string, returned bool) {
	c.note(fmt.Sprintf("negative %s %v", domain, returned))
}

func (c *counter) UnknownField(message protoreflect.FullName, field protowire.Number, times int) {
	c.fields += times
	c.note(fmt.Sprint(message, " ", field))
}

func (c *counter) note(what string) {
	c.Lock()
	defer c.Unlock()
	c.noted = append(c.noted, what)
}

// service returns a service on a store; nil is one in memory.
// with changes how the file is read.
func service(t testing.TB, s backend.Store, change func(*rls.Options), with ...func(*limits.Options)) (*rls.Service, *counter) {
	t.Helper()
	if s == nil {
		s = memory.New(nil)
	}
	base, err := headgate.New(s, []headgate.Policy{{Name: "base", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailOpen}}, nil)
	require.NoError(t, err)
	parse := limits.Options{New: func(p headgate.Policy, _ time.Duration) (*headgate.Limiter, error) { return base.With(p) }}
	for _, w := range with {
		w(&parse)
	}
	config, err := limits.Parse([]limits.File{{Name: "f", Data: []byte(file)}}, parse)
	require.NoError(t, err)
	c := &counter{requests: map[rls.Outcome]int{}, descriptors: map[string]int{}}
	opts := rls.Options{Config: func() *limits.Config { return config }, Observer: c, Budget: time.Second}
	if change != nil {
		change(&opts)
	}
	return rls.New(opts), c
}

// of makes a descriptor of one key; hits below 0 are none.
func of(key string, hits int) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: "v"}}}
	if hits >= 0 {
		d.HitsAddend = wrapperspb.UInt64(uint64(hits))
	}
	return d
}

func ask(t testing.TB, s *rls.Service, ds ...*common.RateLimitDescriptor) *pb.RateLimitResponse {
	t.Helper()
	resp, err := s.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "d", Descriptors: ds})
	require.NoError(t, err)
	require.Len(t, resp.Statuses, len(ds))
	return resp
}

// want checks a response: "+" and "-" for the code of each status with what is left.
func want(t testing.TB, resp *pb.RateLimitResponse, ok bool, left ...int) {
	t.Helper()
	code := pb.RateLimitResponse_OVER_LIMIT
	if ok {
		code = pb.RateLimitResponse_OK
	}
	require.Equal(t, code, resp.OverallCode, resp)
	for i, l := range left {
		require.EqualValues(t, l, resp.Statuses[i].LimitRemaining, resp)
	}
}

func over(resp *pb.RateLimitResponse) (all []bool) {
	for _, s := range resp.Statuses {
		all = append(all, s.Code == pb.RateLimitResponse_OVER_LIMIT)
	}
	return all
}

func TestAllOrNothing(t *testing.T) {
	s, c := service(t, nil, nil)
	for i := range 3 {
		want(t, ask(t, s, of("three", -1), of("ten", -1)), true, 2-i, 9-i)
	}
	resp := ask(t, s, of("three", -1), of("ten", -1))
	want(t, resp, false, 0, 7)
	require.Equal(t, []bool{true, false}, over(resp))
	want(t, ask(t, s, of("ten", -1)), true, 6)
	require.Equal(t, 4, c.requests[rls.OK])
	require.Equal(t, 1, c.requests[rls.OverLimit])
	require.Equal(t, 1, c.descriptors["d.three over"])
}

func TestLateCharges(t *testing.T) {
	s, _ := service(t, nil, nil)
	want(t, ask(t, s, of("ten", 0)), true, 10)
	want(t, ask(t, s, of("ten", 9)), true, 1)
	want(t, ask(t, s, of("ten", 0)), true, 1)
	want(t, ask(t, s, of("ten", 9)), false, 0)
	want(t, ask(t, s, of("ten", 0)), false, 0)
	// By charge: admitted nothing is charged above the limit, and no cost is an error.
	want(t, ask(t, s, of("admitted", 9)), true, 1)
	want(t, ask(t, s, of("admitted", 9)), false, 1)
	want(t, ask(t, s, of("admitted", 1<<40)), false, 1)
	want(t, ask(t, s, of("admitted", 1)), true, 0)
	// One that is over keeps the others from being charged.
	want(t, ask(t, s, of("ten", 0), of("three", -1)), false, 0, 3)
	want(t, ask(t, s, of("three", -1)), true, 2)
}

func TestZeroUnlimitedReplaced(t *testing.T) {
	s, _ := service(t, nil, nil)
	resp := ask(t, s, of("zero", -1), of("three", -1), of("unknown", -1))
	want(t, resp, false, 0, 3, 0)
	require.Positive(t, resp.Statuses[0].DurationUntilReset.GetSeconds())
	require.Nil(t, resp.Statuses[2].CurrentLimit)
	want(t, ask(t, s, of("three", -1)), true, 2)
	resp = ask(t, s, of("free", -1))
	want(t, resp, true, 1<<32-1)
	require.Nil(t, resp.Statuses[0].CurrentLimit)
	resp = ask(t, s, of("ten", -1), of("other", -1))
	require.Nil(t, resp.Statuses[0].CurrentLimit, "replaced")
	want(t, resp, true, 0, 9)
	want(t, ask(t, s, of("ten", -1)), true, 9)
}

func TestShadow(t *testing.T) {
	s, c := service(t, nil, nil)
	for i := range 2 {
		want(t, ask(t, s, of("shadow", -1), of("three", -1)), true, 1-i, 2-i)
	}
	want(t, ask(t, s, of("shadow", -1), of("three", -1)), true, 0, 0)
	require.Equal(t, 1, c.descriptors["d.shadow shadow"])
	want(t, ask(t, s, of("shadow", -1), of("three", -1)), false, 0, 0)
}

// A quota denies if every quota of the request is over, and then the others are given
// back.
func TestQuota(t *testing.T) {
	s, _ := service(t, nil, nil)
	for range 2 {
		want(t, ask(t, s, of("quota", -1), of("ten", -1)), true)
	}
	resp := ask(t, s, of("quota", -1), of("ten", -1))
	want(t, resp, false, 0)
	require.True(t, over(resp)[0], "its own status")
	want(t, ask(t, s, of("ten", 0)), true, 8)
	resp = ask(t, s, of("quota", -1), of("quota3", -1), of("ten", -1))
	want(t, resp, true, 0, 2, 7)
	require.Equal(t, []bool{true, false, false}, over(resp))
	for range 2 {
		want(t, ask(t, s, of("quota", -1), of("quota3", -1)), true)
	}
	want(t, ask(t, s, of("quota", -1), of("quota3", -1)), false, 0, 0)
}

func TestOneCount(t *testing.T) {
	s, _ := service(t, nil, nil)
	limited := of("ten", -1)
	limited.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 4, Unit: typev3.RateLimitUnit_HOUR}
	want(t, ask(t, s, of("ten", -1), of("ten", -1), limited), true, 9, 8, 1)
	resp := ask(t, s, of("ten", -1), of("ten", -1), limited)
	want(t, resp, false, 7, 7, 1) // three are used, and three more are above the least limit: none is charged
	want(t, ask(t, s, of("ten", -1)), true, 6)
	want(t, ask(t, s, of("ten", 2), of("ten", -1), limited), false, 4, 3, 0) // recorded, as are hits above 1
}

func TestInvalid(t *testing.T) {
	s, c := service(t, nil, nil)
	many := many(65)
	wrong := of("ten", -1)
	wrong.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 4}
	for _, req := range []*pb.RateLimitRequest{
		{}, {Domain: "d"}, {Descriptors: many[:1]}, {Domain: "d", Descriptors: many},
		{Domain: "d", Descriptors: []*common.RateLimitDescriptor{wrong}},
	} {
		_, err := s.ShouldRateLimit(ctx, req)
		require.Equal(t, codes.InvalidArgument, status.Code(err), req)
	}
	require.Equal(t, 5, c.requests[rls.Invalid])
	want(t, ask(t, s, many[:64]...), true)
	_, err := s.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "none", Descriptors: many[:1]})
	require.NoError(t, err)
	require.Equal(t, 1, c.unknown)
}

func TestHeadersAndMetadata(t *testing.T) {
	s, _ := service(t, nil, func(o *rls.Options) {
		o.Headers = rls.Headers{Limit: "L", Remaining: "R", Reset: "S", Draft: true}
		o.Metadata = true
	})
	fields := func(resp *pb.RateLimitResponse) map[string]string {
		m := map[string]string{}
		for _, h := range resp.ResponseHeadersToAdd {
			m[h.Key] = h.Value
		}
		return m
	}
	resp := ask(t, s, of("ten", 7), of("gold", -1), of("quota", -1))
	h := fields(resp)
	require.Equal(t, "2", h["L"])
	require.Equal(t, "1", h["R"])
	require.Regexp(t, `^\d+$`, h["S"])
	require.Equal(t, `"ten";q=10;w=3600, "gold";q=5;w=3600`, h["RateLimit-Policy"])
	require.Regexp(t, `^"ten";r=3;t=\d+, "gold";r=4;t=\d+$`, h["RateLimit"])
	require.Empty(t, h["Retry-After"])
	m := resp.DynamicMetadata.AsMap()
	require.Equal(t, map[string]any{"plan": "gold"}, m["metadata"])
	require.Equal(t, true, m["quotaModeEnabled"])
	require.Equal(t, "d", m["domain"])
	require.Equal(t, map[string]any{"entries": []any{"ten=v"}, "hitsAddend": 7.0}, m["descriptors"].([]any)[0])
	h = fields(ask(t, s, of("ten", 7)))
	require.Equal(t, "0", h["R"])
	require.NotEmpty(t, h["Retry-After"])
}

// down is a store that decides nothing.
type down struct{ backend.Store }

func (d down) Do(context.Context, *backend.Request, *backend.Decision) error {
	return headgate.ErrUnavailable
}

func TestUndecided(t *testing.T) {
	s, c := service(t, down{memory.New(nil)}, nil)
	req := func(ds ...*common.RateLimitDescriptor) (*pb.RateLimitResponse, error) {
		return s.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "d", Descriptors: ds})
	}
	for _, hits := range []int{-1, 0, 5} {
		_, err := req(of("ten", hits))
		require.Equal(t, codes.Unavailable, status.Code(err), hits)
		_, err = req(of("open", hits), of("ten", hits))
		require.Equal(t, codes.Unavailable, status.Code(err), hits)
		resp, err := req(of("open", hits))
		require.NoError(t, err)
		want(t, resp, true)
		require.Nil(t, resp.Statuses[0].CurrentLimit, "nobody counted")
		resp, err = req(of("closed", hits), of("open", hits))
		require.NoError(t, err)
		want(t, resp, false)
		require.Nil(t, resp.Statuses[0].CurrentLimit, "nobody counted")
	}
	require.Equal(t, 6, c.requests[rls.Undecided])
}

func TestCallerLeft(t *testing.T) {
	s, c := service(t, nil, nil)
	left, cancel := context.WithTimeout(ctx, time.Nanosecond)
	defer cancel()
	<-left.Done()
	_, err := s.ShouldRateLimit(left, &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{of("ten", -1)}})
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
	require.Equal(t, 1, c.requests[rls.CallerLeft])
}

func TestShadowMode(t *testing.T) {
	s, _ := service(t, nil, func(o *rls.Options) { o.ShadowMode = true })
	resp := ask(t, s, of("zero", -1))
	want(t, resp, true)
	require.True(t, over(resp)[0])
}

// TestLaterHits: a count of two descriptors that is above its limit has nothing left for the
// first of them either.
func TestLaterHits(t *testing.T) {
	s, _ := service(t, nil, nil)
	want(t, ask(t, s, of("three", 5), of("three", 5)), false, 0, 0)
}
