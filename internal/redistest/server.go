package redistest

import (
	"errors"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Server is a redis-server on a port of 127.0.0.1. Safe for concurrent use.
type Server struct {
	bin, dir string
	port     int
	args     []string
	mu       struct {
		sync.Mutex
		proc *process
	}
}

// Start runs a server for this test alone and kills it when the test ends.
// args go to redis-server after our own, so they win. Without a redis-server
// the test is skipped, or fails where CI=true.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := open(t, t.TempDir(), args)
	t.Cleanup(s.Kill)
	return s
}

func open(t testing.TB, dir string, args []string) *Server {
	t.Helper()
	bin := locate(t)
	for range 10 {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{bin: bin, dir: dir, port: port, args: args}
		// Between our look and its bind another process may take the port.
		if err = s.run(); errors.Is(err, errTaken) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	t.Fatal("redistest: ten ports in a row were taken")
	return nil
}

func (s *Server) run() error {
	proc, err := launch(s.bin, s.dir, s.port, s.args)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.proc = proc
	return nil
}

// Addr is host:port, the same after a Restart.
func (s *Server) Addr() string { return address(s.port) }

// Client returns a client that is closed when the test ends. Its only own
// settings keep commands that no test asked for out of CommandStats; all else
// is go-redis's default, also the retries.
func (s *Server) Client(t testing.TB, opts ...func(*redis.Options)) *redis.Client {
	t.Helper()
	o := &redis.Options{
		Addr:                     s.Addr(),
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for _, set := range opts {
		set(o)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Stop suspends the process as SIGSTOP does: connections stay, new ones are
// still accepted by the kernel, nothing answers, and what was sent meanwhile is
// executed after Cont. It panics where the system has no such signal.
func (s *Server) Stop() {
	p := s.proc()
	p.stopped.Store(true) // first, so that nobody asks it in between
	must(freeze(p.cmd.Process))
}

// Cont ends a Stop.
func (s *Server) Cont() {
	p := s.proc()
	must(thaw(p.cmd.Process))
	p.stopped.Store(false)
}

// Kill ends the process as a crash would, also a stopped one. All keys and
// scripts are gone. To kill a dead server does nothing.
func (s *Server) Kill() { s.proc().kill() }

// Restart kills the server if it lives and starts an empty one on its port and
// in its directory: a node of a cluster is still a member of it.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

// living is false for a server that was killed, or stopped: a question to it
// would get no answer.
func (s *Server) living() bool {
	p := s.proc()
	select {
	case <-p.exited:
		return false
	default:
		return !p.stopped.Load()
	}
}

func (s *Server) proc() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.proc
}

// must: to stop a server that is dead is a mistake of the test, and one that
// would make it pass for the wrong reason.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
