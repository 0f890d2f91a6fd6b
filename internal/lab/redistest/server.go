// Package redistest starts, inspects and breaks real Redis servers for tests.
// It needs a Unix system.
//
// It has no fake server. A fake formats numbers, cuts fractions and expires
// keys in its own way, and so hides mistakes that a script makes on a real one.
//
// On Linux every process that a test starts here dies with the test process,
// even after a panic, a timeout or SIGKILL.
package redistest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// startup is the time that a server may take to answer. It is a thousand times
// what it needs, for a machine that runs every package's tests at once.
const startup = 20 * time.Second

// errTaken means that another process holds the port, or the cluster bus's. Only
// the server's own bind can tell: a port that is free now may be taken then.
var errTaken = errors.New("port taken")

// Server is a redis-server, on a port of 127.0.0.1 unless it is behind a Link. It is
// safe for concurrent use.
type Server struct {
	bin, dir string
	host     string // "" is 127.0.0.1
	netns    string // the network namespace to run in; "" is our own
	port     int
	args     []string
	tlsPort  string                  // what AnyPort stands for in args
	proc     atomic.Pointer[process] // the present run; Restart replaces it
}

// defaults keep a server from writing files.
var defaults = []string{"--save", "", "--appendonly", "no", "--protected-mode", "no"}

// AnyPort stands in the arguments of Start for a port that is drawn like the server's
// own: again while it is taken. TLSPort returns it.
const AnyPort = "any port"

// Start runs a server for this test only and kills it when the test ends. args
// override the defaults: no persistence, no protected mode. Without a
// redis-server the test is skipped, or fails where CI=true.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := open(t, t.TempDir(), slices.Concat(defaults, args))
	t.Cleanup(s.Kill)
	return s
}

// shared is owned by the process. It is killed with it.
var shared struct {
	sync.Mutex
	server *Server
}

// Shared returns the one server that all tests of this process may use if they
// need any Redis. A test keeps to keys of its own and neither stops the server
// nor changes its configuration.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		// The server writes no file, so it needs no directory of its own.
		shared.server = open(t, os.TempDir(), defaults)
	}
	return shared.server
}

// Sentinel runs a Redis Sentinel that watches the server under a name, and
// returns it. args are further settings. It is killed when the test ends.
func (s *Server) Sentinel(t testing.TB, name string, args ...string) *Server {
	t.Helper()
	dir := t.TempDir()
	conf := filepath.Join(dir, "sentinel.conf") // Sentinel refuses to start without a file
	watch := fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1\n", name, s.port)
	check(t, os.WriteFile(conf, []byte(watch), 0o600))
	sentinel := open(t, dir, append([]string{conf, "--sentinel"}, args...))
	t.Cleanup(sentinel.Kill)
	return sentinel
}

// locate returns the path of redis-server. Without one the test skips on a
// laptop and fails in CI, where a skip would pass unseen.
func locate(t testing.TB) string {
	t.Helper()
	bin, err := exec.LookPath(cmp.Or(os.Getenv("HEADGATE_REDIS_SERVER"), "redis-server"))
	if err == nil {
		return bin
	}
	const missing = "NOT TESTED: no redis-server (%v); install it with: apt-get install -y redis-server"
	if os.Getenv("CI") == "true" {
		t.Fatalf(missing, err)
	}
	t.Skipf(missing, err)
	return ""
}

// open tries other ports while the one that it drew is taken. Any other failure
// would repeat itself.
func open(t testing.TB, dir string, args []string) *Server {
	t.Helper()
	s, err := &Server{bin: locate(t), dir: dir, args: args}, errTaken
	for i := 0; i < 10 && errors.Is(err, errTaken); i++ {
		s.port, s.tlsPort = randomPort(), strconv.Itoa(randomPort())
		err = s.run()
	}
	check(t, err)
	return s
}

// run starts a process and returns when it serves.
func (s *Server) run() error {
	args := slices.Clone(s.args)
	for i, arg := range args {
		if arg == AnyPort {
			args[i] = s.tlsPort
		}
	}
	args = append(args, "--port", strconv.Itoa(s.port), "--dir", s.dir, "--bind", cmp.Or(s.host, loopback))
	cmd := exec.Command(s.bin, args...)
	if s.netns != "" {
		cmd = exec.Command("ip", append([]string{"netns", "exec", s.netns, s.bin}, args...)...)
	}
	p, err := start(cmd)
	if err != nil {
		return err
	}
	if err := s.await(p); err != nil {
		p.kill()
		return err
	}
	s.proc.Store(p)
	return nil
}

// await reads the log rather than asking the port. When two test processes race
// for it, the loser would get a reply from the winner's server. A server also
// logs when it needs a password that we don't have.
func (s *Server) await(p *process) error {
	for end := time.Now().Add(startup); time.Now().Before(end); time.Sleep(poll) {
		log := p.log()
		if strings.Contains(log, "Ready to accept connections") || strings.Contains(log, "+monitor master") {
			return nil // the latter is Sentinel's
		}
		if !p.alive() {
			if log = p.log(); strings.Contains(log, "Address already in use") {
				return errTaken
			}
			return fmt.Errorf("redistest: redis-server ended:\n%s", log)
		}
	}
	return fmt.Errorf("redistest: not ready within %v:\n%s", startup, p.log())
}

// randomPort stays below 32768, where systems begin to use ports for outgoing
// connections. One of those could take the port of a killed server before its
// restart. So does port + 10000, on which a server in cluster mode listens too.
func randomPort() int { return 10000 + rand.IntN(12000) }

// Addr is host:port, the same after a Restart.
func (s *Server) Addr() string {
	return net.JoinHostPort(cmp.Or(s.host, loopback), strconv.Itoa(s.port))
}

// TLSPort is the port that AnyPort stands for, the same after a Restart.
func (s *Server) TLSPort() string { return s.tlsPort }

const loopback = "127.0.0.1"

// Client returns a client that is closed when the test ends. It differs from
// go-redis's defaults only in that it sends no command of its own, which would
// count in CommandStats. The default retries remain.
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

// Stop suspends the process with SIGSTOP. Connections stay, the kernel accepts
// new ones, and the server executes after Cont what it received meanwhile. Stop
// panics if the server is dead: the test would pass for the wrong reason.
func (s *Server) Stop() { must(s.proc.Load().stop()) }

// Cont ends a Stop.
func (s *Server) Cont() { must(s.proc.Load().cont()) }

// Prefer lets the server run before other processes, where the system permits that. They
// share its processors, as they would not on a host of its own.
func (s *Server) Prefer() { s.proc.Load().prefer() }

// Kill ends the process as a crash would, a stopped one too. All keys and
// scripts are lost. Kill does nothing to a dead server.
func (s *Server) Kill() { s.proc.Load().kill() }

// Restart kills the server and starts an empty one on its port and in its
// directory. A node of a cluster remains a member of it.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill()
	check(t, s.run())
}

// living is false for a killed and for a stopped server: neither replies.
func (s *Server) living() bool {
	p := s.proc.Load()
	return p.alive() && !p.stopped.Load()
}

// must is for methods that tests call on any goroutine, where they can't end
// the test.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// check fails the test on an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// do fails the test where the command fails.
func do(t testing.TB, c *redis.Client, args ...any) {
	t.Helper()
	if err := c.Do(context.Background(), args...).Err(); err != nil {
		t.Fatalf("redistest: %v at %s: %v", args, c.Options().Addr, err)
	}
}

// Long reports whether tests run at full length: `make test-long` sets
// HEADGATE_LONG. Otherwise each test takes the fewest steps that show its
// subject.
func Long() bool { return os.Getenv("HEADGATE_LONG") != "" }

// Steps returns short, or long where tests run at full length.
func Steps(short, long int) int {
	if Long() {
		return long
	}
	return short
}

// Seed returns where a random test begins, and logs it: HEADGATE_SEED=N in the
// environment, or else the time at which the process first asked.
func Seed(t testing.TB) uint64 {
	t.Helper()
	n, err := seed()
	check(t, err)
	t.Logf("HEADGATE_SEED=%d", n)
	return n
}

var seed = sync.OnceValues(func() (uint64, error) {
	now := strconv.FormatInt(time.Now().UnixNano(), 10)
	return strconv.ParseUint(cmp.Or(os.Getenv("HEADGATE_SEED"), now), 10, 64)
})

// Plain skips a test under the race detector, which finds nothing in a test of one
// goroutine. A long test of many is also such a one if another test runs its code under the
// detector. The Makefile lists these tests, and runs them without it.
func Plain(t testing.TB) {
	t.Helper()
	if Raced {
		t.Skip("make test runs it without the race detector")
	}
}
