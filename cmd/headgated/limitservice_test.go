package main

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// bytesCodec sends bytes as they are.
type bytesCodec struct{ codec }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// raw sends bytes as a request.
func (s *testServer) raw(t *testing.T, b []byte) (*rlspb.RateLimitResponse, error) {
	t.Helper()
	resp := new(rlspb.RateLimitResponse)
	err := dial(t, s.grpcAddr()).Invoke(context.Background(), rlspb.RateLimitService_ShouldRateLimit_FullMethodName, b, resp, grpc.ForceCodecV2(bytesCodec{newCodec()}))
	return resp, err
}

// A value that is no UTF-8 is content: each has its count. A proxy sends a client's header as it
// is, so that a refusal would be a way around the limit.
func TestAnyBytes(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits, "-dynamic-metadata")
	ask := func(value string) bool {
		b, err := proto.Marshal(userRequest("????"))
		require.NoError(t, err)
		resp, err := s.raw(t, bytes.Replace(b, []byte("????"), []byte(value), 1))
		require.NoError(t, err)
		require.NotNil(t, resp.DynamicMetadata)
		return resp.OverallCode == rlspb.RateLimitResponse_OK
	}
	for _, value := range []string{"\xff\xfeab", "\xff\xfdab", "a\x80\xc3\xa9"} {
		require.True(t, ask(value))
		require.True(t, ask(value))
		require.False(t, ask(value), "%q", value)
	}
	resp, err := http.Post(s.httpURL()+"/json", "application/json",
		bytes.NewReader([]byte("{\"domain\": \"d\", \"descriptors\": [{\"entries\": [{\"key\": \"user\", \"value\": \"\xff\xfeab\"}]}]}")))
	code, body := read(t, resp, err)
	require.Equal(t, 429, code, body)
	require.Contains(t, scrape(t, s), `headgated_requests_total{result="invalid"} 0`)
}

// A proxy that traces passes on its client's tracestate, which may be as long as all that Envoy
// takes from a client (60 KiB). It is no way around the limit, and neither is gzip, which
// envoyproxy/ratelimit reads.
func TestHeadersAndGzip(t *testing.T) {
	t.Parallel()
	client := startServer(t, userLimits).client(t)
	ctx := metadata.AppendToOutgoingContext(context.Background(), "tracestate", strings.Repeat("x", 60<<10))
	for _, want := range []rlspb.RateLimitResponse_Code{rlspb.RateLimitResponse_OK, rlspb.RateLimitResponse_OK, rlspb.RateLimitResponse_OVER_LIMIT} {
		resp, err := client.ShouldRateLimit(ctx, userRequest("x"), grpc.UseCompressor("gzip"))
		require.NoError(t, err)
		require.Equal(t, want, resp.OverallCode)
	}
}

// A request that gRPC can't read is seen: a metric by reason, and a line per minute.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	v, log := logged(t, userLimits, "-max-message", "1000")
	s := &testServer{server: v}
	long, err := proto.Marshal(userRequest(string(bytes.Repeat([]byte("x"), 2000))))
	require.NoError(t, err)
	for i, b := range [][]byte{long, long[:500], {0xff}} {
		_, err := s.raw(t, b)
		require.Equal(t, []codes.Code{codes.ResourceExhausted, codes.Internal, codes.Internal}[i], status.Code(err), "%v", err)
	}
	err = dial(t, s.grpcAddr()).Invoke(context.Background(), "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit", userRequest("x"), new(rlspb.RateLimitResponse))
	require.Equal(t, codes.Unimplemented, status.Code(err), "%v", err)
	for _, line := range []string{`headgated_invalid_requests_total{reason="message"} 3`, `headgated_invalid_requests_total{reason="method"} 1`,
		`headgated_requests_total{result="invalid"} 4`} {
		require.Eventually(t, func() bool { return strings.Contains(scrape(t, s), line) }, 10*time.Second, 5*time.Millisecond, line) // gRPC answers first
	}
	require.Equal(t, 1, bytes.Count([]byte(log.String()), []byte("reason=message")), log.String())
	require.Contains(t, log.String(), "larger than max")
}

// TestManyMessages: a request that would take many times its bytes of memory is refused before it
// is read, whatever it has many of.
func TestManyMessages(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits)
	entries := bytes.Repeat([]byte("\x0a\x00"), rls.MaxMessages)
	for _, b := range [][]byte{bytes.Repeat([]byte("\x12\x00"), rls.MaxMessages+1), protowire.AppendBytes([]byte("\x0a\x01d\x12"), entries)} {
		_, err := s.raw(t, b)
		require.Equal(t, codes.Internal, status.Code(err), "%v", err)
		require.ErrorContains(t, err, "131072 messages")
	}
	_, err := s.raw(t, protowire.AppendBytes([]byte("\x0a\x01d\x12"), entries[2:]))
	require.NoError(t, err)
	for _, text := range []string{"{},", `{"entries": [` + strings.Repeat("{},", rls.MaxMessages) + `{}]},`} {
		resp, err := http.Post(s.httpURL()+"/json", "", strings.NewReader(`{"domain": "d", "descriptors": [`+strings.Repeat(text, rls.MaxMessages*3/len(text)+1)+`{}]}`))
		code, body := read(t, resp, err)
		require.Equal(t, 400, code)
		require.Contains(t, body, "131072 messages")
	}
	resp, err := http.Post(s.httpURL()+"/json", "", strings.NewReader(`{"domain": `+strings.Repeat("x", 1<<20)))
	_, body := read(t, resp, err)
	require.Less(t, len(body), 1000, "a client's text is not sent back")
}
