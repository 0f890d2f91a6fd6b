package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	install = "apt-get install -y redis-server"
	// A server is up in some 20 ms; a machine that runs every package's tests
	// at once under -race may take a hundred times that.
	startup = 20 * time.Second
	poll    = 2 * time.Millisecond
)

// errTaken means that somebody else holds the port: another one may do.
var errTaken = errors.New("port taken")

// locate returns the server's binary. A missing one must not turn a run green
// where nobody would notice, so it skips on a laptop and fails in CI.
func locate(t testing.TB) string {
	t.Helper()
	name := "redis-server"
	if set := os.Getenv("HEADGATE_REDIS_SERVER"); set != "" {
		name = set
	}
	bin, err := exec.LookPath(name)
	if err == nil {
		return bin
	}
	const missing = "NOT TESTED: no redis-server (%v); install it with: %s"
	if os.Getenv("CI") == "true" {
		t.Fatalf(missing, err, install)
	}
	t.Skipf(missing, err, install)
	return ""
}

// freePort returns a port on which nobody listens. It stays below 32768, where
// systems begin to hand out ports for outgoing connections: one of those could
// settle on the port of a server that a test has killed and wants back. Port +
// 10000 is free too, since a server in cluster mode listens there as well.
func freePort() (int, error) {
	for range 100 {
		port := 10000 + rand.IntN(12000)
		if free(port) && free(port+10000) {
			return port, nil
		}
	}
	return 0, errors.New("redistest: no free port in 100 tries")
}

func free(port int) bool {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// process is one run of redis-server; a Server that is restarted has several.
type process struct {
	cmd     *exec.Cmd
	log     *output
	exited  chan struct{}
	stopped atomic.Bool
	release func()
}

// launch runs the server and returns once it answers.
func launch(bin, dir string, port int, extra []string) (*process, error) {
	args := []string{
		"--port", strconv.Itoa(port), "--dir", dir, "--save", "", "--appendonly", "no",
		"--bind", "127.0.0.1", "--protected-mode", "no",
	}
	return begin(bin, port, append(args, extra...))
}

// begin runs the binary with args, which name the port.
func begin(bin string, port int, args []string) (*process, error) {
	p := &process{cmd: exec.Command(bin, args...), log: new(output), exited: make(chan struct{})}
	// Never our own stdout: `go test` waits until everyone has closed that.
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	var err error
	if p.release, err = spawn(p.cmd); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // how it ended is in its log
	}()
	if err := p.await(address(port)); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

func (p *process) await(addr string) error {
	for end := time.Now().Add(startup); time.Now().Before(end); {
		select {
		case <-p.exited:
			return p.failure()
		case <-time.After(poll):
		}
		if up, err := p.answers(addr); up || err != nil {
			return err
		}
	}
	return fmt.Errorf("redistest: no PONG within %v:\n%s", startup, p.log)
}

func (p *process) failure() error {
	said := p.log.String()
	if strings.Contains(said, "Address already in use") {
		return errTaken
	}
	return fmt.Errorf("redistest: redis-server ended:\n%s", said)
}

// answers asks for more than PING: when two test processes race for a port, the
// loser gets a PONG too, from the winner's server. A server that wants a
// password refuses to say its process id, and is taken at its word.
func (p *process) answers(addr string) (bool, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false, nil // not yet
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\nINFO server\r\n")); err != nil {
		return false, nil
	}
	in := newFrames(conn)
	pong, err := in.next()
	if err != nil || bytes.HasPrefix(pong, []byte("-LOADING")) {
		return false, nil
	}
	info, err := in.next()
	if err != nil {
		return false, nil
	}
	own := fmt.Sprintf("process_id:%d\r\n", p.cmd.Process.Pid)
	if info[0] != '-' && !bytes.Contains(info, []byte(own)) {
		return false, errTaken
	}
	return true, nil
}

// kill also ends a process that is stopped. It returns when the port is free.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only when it is dead already
	<-p.exited
	p.release()
}

// output collects what a process prints, for the message of a failing test.
type output struct {
	mu struct {
		sync.Mutex
		buf bytes.Buffer
	}
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.buf.String()
}
