package grpclimit

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// stream is a client's stream that is opened again where the server refuses it.
// The client sends one message, which is kept until the first one is received.
type stream struct {
	ctx      context.Context
	open     func() (grpc.ClientStream, error)
	budget   *budget // RecvMsg's
	received bool    // RecvMsg's: a message came, so the server has admitted the stream
	mu       struct {
		sync.Mutex
		current grpc.ClientStream
		sent    any // nil: not yet
		closed  bool
	}
}

// SendMsg sends the client's message. The lock is held meanwhile, so that the
// message goes to the stream that is read.
func (s *stream) SendMsg(m any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.sent = m
	return s.mu.current.SendMsg(m)
}

// CloseSend ends the sending side.
func (s *stream) CloseSend() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	return s.mu.current.CloseSend()
}

// RecvMsg receives a message. Where the server refused the stream, it waits for
// the delay that the server named and opens the stream again.
func (s *stream) RecvMsg(m any) error {
	err := s.stream().RecvMsg(m)
	for err != nil && !s.received {
		if err = s.budget.wait(s.ctx, err); err != nil {
			return err
		}
		if err = s.reopen(); err == nil {
			err = s.stream().RecvMsg(m)
		}
	}
	s.received = s.received || err == nil
	return err
}

// reopen repeats on a new stream what the client has done on the refused one.
// The lock keeps SendMsg and CloseSend out, so that nothing is done twice or on
// the old stream.
func (s *stream) reopen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := s.open()
	if err != nil {
		return err
	}
	s.mu.current = next
	if s.mu.sent != nil {
		err = next.SendMsg(s.mu.sent)
	}
	if err == nil && s.mu.closed {
		err = next.CloseSend()
	}
	return err
}

func (s *stream) stream() grpc.ClientStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.current
}

// Header, Trailer and Context are those of the stream that was opened last.
func (s *stream) Header() (metadata.MD, error) { return s.stream().Header() }

// Trailer is the trailer of the stream that was opened last.
func (s *stream) Trailer() metadata.MD { return s.stream().Trailer() }

// Context is the context of the stream that was opened last.
func (s *stream) Context() context.Context { return s.stream().Context() }
