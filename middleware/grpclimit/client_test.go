//go:build go1.25

package grpclimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/middleware/grpclimit"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

func client(t testing.TB, l *headgate.Limiter, key grpclimit.Key, opts *grpclimit.Options) *grpclimit.Client {
	t.Helper()
	c, err := grpclimit.NewClient(l, key, opts)
	require.NoError(t, err)
	return c
}

func refusal(code codes.Code, delay time.Duration) error {
	s, _ := status.New(code, "refused").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	return s.Err()
}

// try makes one unary call through c against next, which stands for the server,
// and returns how long it took.
func try(ctx context.Context, c *grpclimit.Client, next func() error) (time.Duration, error) {
	begin := time.Now()
	err := c.Unary(ctx, "/s/m", nil, nil, new(grpc.ClientConn),
		func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return next() })
	return time.Since(begin), err
}

// refusals refuses n times, then passes.
func refusals(n int, err error) func() error {
	return func() error {
		if n--; n >= 0 {
			return err
		}
		return nil
	}
}

func TestClientWaits(t *testing.T) {
	const exhausted, sec = codes.ResourceExhausted, time.Second
	in := func(delay time.Duration) error { return refusal(exhausted, delay) }
	for name, c := range map[string]struct {
		next              func() error
		deadline, maxWait time.Duration // 0: none
		took              time.Duration
		code              codes.Code
	}{
		"obeys":                    {refusals(1, in(3*sec)), 0, 0, 3 * sec, codes.OK},
		"obeys twice":              {refusals(2, in(3*sec)), 0, 0, 6 * sec, codes.OK},
		"obeys UNAVAILABLE":        {refusals(1, refusal(codes.Unavailable, sec)), 0, 0, sec, codes.OK},
		"not another code":         {refusals(1, refusal(codes.Aborted, sec)), 0, 0, 0, codes.Aborted},
		"not without RetryInfo":    {refusals(1, status.Error(exhausted, "")), 0, 0, 0, exhausted},
		"not beyond the deadline":  {refusals(1, in(3*sec)), 2 * sec, 0, 0, exhausted},
		"within the deadline":      {refusals(1, in(3*sec)), 4 * sec, 0, 3 * sec, codes.OK},
		"not beyond MaxWait":       {refusals(9, in(3*sec)), 0, 7 * sec, 6 * sec, exhausted},
		"30 s by default":          {refusals(99, in(9*sec)), 0, 0, 27 * sec, exhausted},
		"no loop on a delay of 0":  {refusals(10, in(0)), 0, 0, 1023 * time.Millisecond, codes.OK},
		"no loop on a negative":    {refusals(10, in(-time.Hour)), 0, 0, 1023 * time.Millisecond, codes.OK},
		"no overflow on year 9999": {refusals(1, in(1<<63-1)), 0, 0, 0, exhausted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := context.Background()
				if c.deadline > 0 {
					var cancel func()
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				took, err := try(ctx, client(t, nil, grpclimit.Key{}, &grpclimit.Options{MaxWait: c.maxWait}), c.next)
				require.Equal(t, c.code, status.Code(err))
				require.Equal(t, c.took, took)
			})
		})
	}
}

func TestClientIsCanceledWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		took, err := try(ctx, client(t, nil, grpclimit.Key{}, nil), refusals(1, refusal(codes.ResourceExhausted, 9*time.Second)))
		require.Equal(t, codes.Canceled, status.Code(err))
		require.Equal(t, time.Second, took)
	})
}

// TestClientsLimiter: two clients share a count; a call counts once, however
// often the server refuses it.
func TestClientsLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, nil, policy(algo.SlidingLog(algo.Per(2, 10*time.Second))))
		a, b := client(t, l, grpclimit.FullMethod(), nil), client(t, l, grpclimit.FullMethod(), nil)
		took, err := try(context.Background(), a, refusals(3, refusal(codes.ResourceExhausted, time.Second)))
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, took)
		took, err = try(context.Background(), b, refusals(0, nil))
		require.NoError(t, err)
		require.Zero(t, took)
		took, err = try(context.Background(), b, refusals(0, nil))
		require.NoError(t, err)
		require.Equal(t, 7*time.Second, took, "it waits before it calls")
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		took, err = try(ctx, a, func() error { t.Error("not admitted"); return nil })
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.Zero(t, took)
	})
}

// TestClientOnAServer: through a real connection every call passes, a stream with
// one message from the client too.
func TestClientOnAServer(t *testing.T) {
	for _, shape := range []string{"unary", "server stream"} {
		t.Run(shape, func(t *testing.T) {
			l := limiter(t, nil, policy(algo.SlidingLog(algo.Per(1, 50*time.Millisecond))))
			cc := through(t, l)
			for range 3 {
				require.NoError(t, shapes[shape](context.Background(), cc))
			}
		})
	}
}

// TestManyMessagesAreNotKept: a stream on which the client sends many messages
// gets the refusal.
func TestManyMessagesAreNotKept(t *testing.T) {
	cc := through(t, limiter(t, newClock(), policy(algo.SlidingLog(algo.PerSecond(1)))))
	require.NoError(t, shapes["two-way stream"](context.Background(), cc))
	require.Equal(t, codes.ResourceExhausted, status.Code(shapes["two-way stream"](context.Background(), cc)))
}

// endings is a stream of which RecvMsg returns one error after the other, the last again
// and again.
type endings struct {
	grpc.ClientStream
	errs []error
}

func (e *endings) SendMsg(any) error { return nil }
func (e *endings) CloseSend() error  { return nil }

func (e *endings) RecvMsg(any) error {
	err := e.errs[0]
	e.errs = e.errs[min(1, len(e.errs)-1):]
	return err
}

// TestAdmittedStreamIsNotOpenedAgain: after a message, an error is the stream's end,
// however often it is received.
func TestAdmittedStreamIsNotOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		open := func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			opened++
			return &endings{errs: []error{nil, refusal(codes.ResourceExhausted, time.Second)}}, nil
		}
		s, err := client(t, nil, grpclimit.Key{}, nil).Stream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, new(grpc.ClientConn), "/s/m", open)
		require.NoError(t, err)
		require.NoError(t, s.SendMsg(1))
		require.NoError(t, s.CloseSend())
		require.NoError(t, s.RecvMsg(nil))
		for range 2 {
			require.Equal(t, codes.ResourceExhausted, status.Code(s.RecvMsg(nil)))
		}
		require.Equal(t, 1, opened)
	})
}

// through returns a connection with the client's interceptors to a server that
// limits by l.
func through(t *testing.T, l *headgate.Limiter) *grpc.ClientConn {
	c := client(t, nil, grpclimit.Key{}, nil)
	return dial(t, serve(t, limited(server(t, l, grpclimit.PeerAddress(), nil))...),
		grpc.WithChainUnaryInterceptor(c.Unary), grpc.WithChainStreamInterceptor(c.Stream))
}
