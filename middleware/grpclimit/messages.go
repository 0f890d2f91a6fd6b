package grpclimit

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// stream calls the handler of a stream with the context of its call.
func (g *gate) stream(ctx context.Context, rpc RPC, ss grpc.ServerStream, srv any, next grpc.StreamHandler) error {
	if ctx != ss.Context() {
		ss = held{ss, ctx}
	}
	if g.opts.Messages == nil {
		return next(srv, ss)
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	counted := &messages{ServerStream: ss, ctx: ctx, end: end, gate: g, rpc: rpc}
	err := next(srv, counted)
	if refused := counted.refused.Load(); refused != nil {
		return *refused
	}
	return err
}

// held is a stream with the context of its call.
type held struct {
	grpc.ServerStream
	ctx context.Context
}

// Context is the handler's.
func (s held) Context() context.Context { return s.ctx }

// messages is a stream whose received messages count. One goroutine at a time receives, and
// may do so when the handler has returned.
type messages struct {
	grpc.ServerStream
	ctx     context.Context
	end     context.CancelFunc
	gate    *gate
	rpc     RPC
	refused atomic.Pointer[error] // of the message that ended the stream
}

// Context ends where a message is refused.
func (s *messages) Context() context.Context { return s.ctx }

// RecvMsg receives a message and decides it.
func (s *messages) RecvMsg(m any) error {
	if refused := s.refused.Load(); refused != nil {
		return *refused
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	s.rpc.Request = m
	all, err := s.gate.opts.Messages(s.ctx, s.rpc)
	list, _, err := s.gate.ready(all, false, err)
	if err == nil && len(list) > 0 {
		_, delay, refused := s.gate.decide(s.ctx, list, nil, false)
		if err = refused; err != nil {
			s.SetTrailer(metadata.Pairs(pushback, pushbackMillis(s.ctx, delay)))
		}
	}
	if err != nil {
		s.refused.Store(&err)
		s.end()
	}
	return err
}
