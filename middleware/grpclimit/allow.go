package grpclimit

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/middleware/internal/parts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Allow decides the parts inside of a server's handler. Use it where keys or costs come
// from what the handler has read, such as the name in a login. It returns nil if the call
// passes, and else the error that a Server refuses it with, for the handler to return:
//
//	if err := grpclimit.Allow(ctx, attempts.Part(headgate.Key("user", req.GetName()))); err != nil {
//		return nil, err
//	}
//
// No parts are no limit, and an empty key is INVALID_ARGUMENT. A part with a policy of
// calls in flight is INTERNAL: reserve it by headgate.ReserveAll.
func Allow(ctx context.Context, list ...headgate.Part) error {
	g := &gate{}
	list, _, err := g.ready(list, false, nil)
	if err != nil || len(list) == 0 {
		return err
	}
	parts.MarksOf(list[0].Limiter).Meet(ctx, list)
	_, delay, err := g.decide(ctx, list, nil, false)
	if err != nil {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(pushback, pushbackMillis(ctx, delay)))
	}
	return err
}

// Denied returns the error of a denial of the parts, with the details that a Server sends. It is
// RESOURCE_EXHAUSTED, or UNAVAILABLE if no store decided. Each part's
// Call.Each has the states. It is nil of a decision that passed.
func Denied(d headgate.Decision, list ...headgate.Part) error {
	if d.Allowed {
		return nil
	}
	_, err := denied(d, list)
	return err
}

// FromHTTP counts calls by a key of package httplimit, so that HTTP and gRPC count one
// client alike, also behind a proxy:
//
//	grpclimit.FromHTTP(httplimit.TrustedProxies("10.0.0.0/8").Of)
//
// key gets a request with the addresses of the connection, the metadata as its header, and
// the method as its path. A warning of TrustedProxies goes to the standard logger of package
// log. It is for a Server. FromHTTP calls key once by itself, with a request
// that has none of these. New refuses a key that was made with wrong arguments: then key returns
// an *InvalidError.
func FromHTTP(key func(*http.Request) (string, error)) Key {
	if key == nil {
		return invalid("key", "nil", "that of a key of package httplimit")
	}
	empty := func() *http.Request {
		return &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/"}, Header: http.Header{}}
	}
	if _, err := key(empty()); errors.As(err, new(*headgate.InvalidError)) {
		return Key{err: err}
	}
	return Key{of: func(ctx context.Context, rpc RPC) (headgate.Call, error) {
		r := empty().WithContext(ctx)
		r.URL.Path = rpc.FullMethod
		if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
			//mutant:unix-socket-of-a-call
			r = r.WithContext(context.WithValue(ctx, http.LocalAddrContextKey, p.LocalAddr))
			r.RemoteAddr = p.Addr.String()
		}
		md, _ := metadata.FromIncomingContext(ctx)
		for name, values := range md {
			r.Header[http.CanonicalHeaderKey(name)] = values
		}
		k, err := key(r)
		return headgate.Call{Key: k}, err
	}}
}
