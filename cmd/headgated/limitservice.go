package main

import (
	"fmt"

	"github.com/headgate-go/headgate/cmd/headgated/internal/bounded"
	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// limitService returns Envoy's service with its method as a stream of one message each way. So a
// request that gRPC can't read is seen here. On the wire there is no difference.
func (v *server) limitService() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: rlspb.RateLimitService_ServiceDesc.ServiceName,
		HandlerType: (*rlspb.RateLimitServiceServer)(nil),
		Streams:     []grpc.StreamDesc{{StreamName: "ShouldRateLimit", Handler: v.shouldRateLimit}},
		Metadata:    rlspb.RateLimitService_ServiceDesc.Metadata,
	}
}

// shouldRateLimit decides the request of a stream. Keepalives and health checks leave a
// connection idle.
func (v *server) shouldRateLimit(_ any, stream grpc.ServerStream) error {
	req, ctx := new(rlspb.RateLimitRequest), stream.Context()
	var c *bounded.Conn
	if p, ok := peer.FromContext(ctx); ok {
		c = bounded.Of(p.Addr)
	}
	err := stream.RecvMsg(req)
	c.Arrived()
	if err != nil {
		return v.unreadable(err)
	}
	c.Begin()
	defer c.End()
	resp, err := v.service.ShouldRateLimit(ctx, req)
	if err != nil {
		return err
	}
	return stream.SendMsg(resp)
}

// unreadable reports a request that is longer than may be, or no message. gRPC has answered it.
func (v *server) unreadable(err error) error {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded:
		v.metrics.Request(rls.CallerLeft)
	default:
		v.unread(rls.BadMessage, err)
	}
	return err
}

// noMethod answers a method that the server does not have, such as that of an older version of
// the protocol.
func (v *server) noMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	err := status.Errorf(codes.Unimplemented, "there is no method %s", method)
	v.unread(rls.NoMethod, err)
	return err
}

// unread reports a request that is none, as the service does with what it can read.
func (v *server) unread(reason rls.Reason, err error) {
	v.metrics.Request(rls.Invalid)
	v.metrics.Invalid("", reason, err)
}

// codec is that of Protocol Buffers. The texts of a request may be any bytes.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

var errManyMessages = fmt.Errorf("a request has more than %d messages in it", rls.MaxMessages)

// Unmarshal reads a message; a request once more if it is refused.
func (c codec) Unmarshal(data mem.BufferSlice, to any) error {
	req, ok := to.(*rlspb.RateLimitRequest)
	//mutant:messages-take-memory
	if ok && data.Len() > 2*rls.MaxMessages && rls.TooMany(data.Materialize()) { // one takes two bytes at least
		return errManyMessages
	}
	err := c.CodecV2.Unmarshal(data, to)
	//mutant:any-bytes
	if ok && err != nil {
		return rls.Unmarshal(data.Materialize(), req)
	}
	return err
}
