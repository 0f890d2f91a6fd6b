// Package grpclimit limits the rate of gRPC calls with a headgate.Limiter. On a
// server it refuses calls above the limit. On a client it waits for the time
// that a server names.
//
//	limit, err := grpclimit.New(limiter, grpclimit.PeerAddress(), nil)
//	if err != nil {
//		log.Fatal(err)
//	}
//	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
//
// A [Server] counts a call before its handler runs, and a stream once, when it
// opens. A call that is refused gets
//
//   - RESOURCE_EXHAUSTED with RetryInfo and QuotaFailure details where a limit
//     is reached,
//   - INVALID_ARGUMENT with QuotaFailure where the call costs more than the
//     limit can ever grant: no retry of it can pass. The message has the policy
//     and the greatest cost that it admits,
//   - UNAVAILABLE with RetryInfo where no store could count and a policy fails
//     closed, and UNAVAILABLE without it where the store was closed,
//   - INVALID_ARGUMENT where the call has no key, one that is too long or given
//     several times, or a negative cost; a call that costs nothing passes,
//   - PERMISSION_DENIED where the function returned headgate.ErrBlocked,
//   - CANCELED or DEADLINE_EXCEEDED where the client left first,
//   - what the key function returned, or INTERNAL for an error without a status.
//
// [Allow] is a limit inside of a handler, and [FromHTTP] counts by the keys of package
// httplimit, such as the client's address behind a proxy.
//
// [NewAll] decides by what a function returns for each call: several limiters and
// keys, all or nothing, or the limiter of a customer's plan. Options.Messages counts the
// messages of a stream too.
//
// The delay is rounded up to whole milliseconds: a client that sleeps for it and
// retries is admitted, unless another call took the units. The delay is also in
// the trailer grpc-retry-pushback-ms, which grpc-go's own retry policy obeys. The
// trailer is negative ("do not retry") where the delay passes the call's deadline. An
// error of the key's function has no trailer.
//
// A call holds a slot of an algo.InFlight policy until its handler returns. Where
// the cost shows only then, Options.Settle returns it: by the response, the error,
// or what the handler gave to [Report].
//
// Neither the message nor the details contain the key, or the name of a policy with
// Policy.Shadow, which denies nothing.
package grpclimit
