package batch

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/headgate-go/headgate/internal/chance"
	"github.com/redis/go-redis/v9"
)

// While the circuit of a server is open, a probe waits for the server's first answer. It waits on
// a connection of its own and without a caller. A stopped server answers the probe at the instant
// at which it continues. TCP sends a lost packet again only after 200 ms or more. So another
// probe leaves after each slowest, while none has its connection. After a probe that failed,
// since no server listens, the next one leaves after quickest, then after twice the time.
const (
	quickest = 25 * time.Millisecond
	slowest  = 90 * time.Millisecond
	patient  = time.Second     // how long most probes wait, and how long any does without a call
	forever  = time.Hour       // how long one at a time waits
	most     = 16              // dials of probes under way, of a dialer that ignores its context
	hung     = 3 * time.Second // between two probes where there are so many
)

// listen starts a probe of the server if its circuit waits for an answer, and reports
// whether it does. It is called when a round trip has failed, and when one or a call was
// refused.
//
// At most one probe runs per server. It ends by itself when the circuit closes, no calls
// come any more, or the store is closed.
func (s *Server) listen() (awaits bool) {
	s.refused.Store(int64(now()))
	awaits = s.Shared.Awaits(s.Node)
	if awaits && s.probing.CompareAndSwap(false, true) {
		go s.probe()
	}
	return awaits
}

// awaited reports whether the circuit still waits, and calls still come.
// Without calls a probe ends after patient, so that an idle process sends nothing.
func (s *Server) awaited() bool {
	return s.Shared.Awaits(s.Node) && now()-time.Duration(s.refused.Load()) < patient && !s.Shared.Closed.Load()
}

// probe sends probes until one is answered, or none is awaited any more. One at a time stays
// until then, and has the dial timeout of the client. A name may have addresses that don't
// answer before the one that does. The next call after a quiet time is the trial, since
// nothing has waited for an answer of the server meanwhile.
func (s *Server) probe() {
	defer s.probed()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.tryIdle() // so that the trial meets no dead connection
	begin, pause, timer, ended := now(), quickest, time.NewTimer(about(slowest)), make(chan bool)
	due := begin + seldom
	defer timer.Stop()
	go s.ask(ctx, begin, ended)
	for s.awaited() {
		select {
		case <-timer.C:
			//mutant:connected-probe-waits
			if s.dials.Load() > 0 || now() >= due {
				due = now() + seldom
				go s.ask(ctx, begin, ended)
			}
			//mutant:probes-bounded
			if s.dials.Load() < most {
				timer.Reset(about(slowest))
			} else {
				timer.Reset(about(hung))
			}
		case answered := <-ended:
			if answered {
				return
			}
			due = 0
			timer.Reset(about(pause))
			pause = min(2*pause, slowest)
		case <-s.Shared.Done():
			return
		}
	}
}

// probed is called when a probe has ended.
func (s *Server) probed() {
	switch s.probing.Store(false); {
	case s.awaited(): // the trial has failed already
		s.listen()
	case s.Shared.Awaits(s.Node):
		//mutant:quiet-call-is-trial
		s.Shared.Answered(s.Node)
	}
}

// about returns d with a jitter, or all processes would probe at one instant.
func about(d time.Duration) time.Duration { return d*19/20 + chance.Duration(d/10) }

// ask sends a probe, which stays if no other one does. It reports to the guard if the server
// is ready for a trial. A second after the first probe any answer will do: the trial shows
// what the server lacks. A probe that ends for want of time says nothing.
func (s *Server) ask(ctx context.Context, begin time.Duration, ended chan<- bool) {
	within := patient
	//mutant:one-probe-stays
	if s.staying.CompareAndSwap(false, true) {
		defer s.staying.Store(false)
		within = forever
	}
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	//mutant:probe-panics
	err := client.Guarded(func() error { return s.ready(bounded) })
	var reply redis.Error
	//mutant:any-answer-in-the-end
	late := now()-begin > patient && (errors.As(err, &reply) || err == errReplica)
	answered := err == nil || late
	if answered {
		s.Shared.Answered(s.Node)
	}
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() || bounded.Err() != nil {
		return
	}
	select {
	case ended <- answered:
	case <-ctx.Done():
	}
}

var errReplica = errors.New("the server is a replica")

// ready returns why the server can't serve a trial. It does not answer, loads its data,
// runs a script without end, or has become a replica.
//
// The connection is fresh, beside the pool: the pool may be full of connections that are
// dead and silent.
func (s *Server) ready(ctx context.Context) error {
	//mutant:probe-beside-the-pool
	c := client.Fresh(ctx, s.client, &s.dials, &s.link.beside)
	if c == nil {
		return s.process(s.Budget, "ping")
	}
	defer c.Close()
	pipe, hello := c.Pipeline(), redis.NewMapStringInterfaceCmd(ctx, "hello")
	ping := pipe.Ping(ctx)
	_ = pipe.Process(ctx, hello) // which any user may send
	_, _ = pipe.Exec(ctx)
	err := ping.Err()
	var reply redis.Error
	if errors.As(err, &reply) && !is(err, soon) && !redis.HasErrorPrefix(err, "BUSY") {
		err = nil // such as a missing right to PING
	}
	//mutant:primary-probed
	if err == nil && hello.Val()["role"] == "replica" && s.served.Load() != 0 {
		err = errReplica
	}
	return err
}

// late notes an answer that came after the deadline: the server is there.
func (t *roundTrip) late(at *Server, err error) {
	if err == nil && at != nil && slices.ContainsFunc(t.commands, func(c *command) bool { return c.Err() == nil }) {
		at.served.Store(int64(now()))
		//mutant:late-reply-noted
		at.Shared.Answered(at.Node)
	}
}
