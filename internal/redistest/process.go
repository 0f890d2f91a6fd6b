package redistest

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// poll is the pause between two looks at a process. A server is up in 20 ms.
const poll = 2 * time.Millisecond

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

// process is a child of this process. The caller of start owns it and kills it.
// err is read only after exited is closed.
type process struct {
	cmd     *exec.Cmd
	log     output
	stopped atomic.Bool
	exited  chan struct{} // closed when err is set
	err     error
}

// start runs a command whose output is kept. One goroutine waits for its end,
// as Wait may be called only once.
func start(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, exited: make(chan struct{})}
	// Never our own stdout: `go test` waits until every process has closed it.
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.exited)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// kill also ends a stopped process. It returns when the process has exited, so
// that its port is free.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only for a dead process
	<-p.exited
}

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// stop suspends the process and returns when it is suspended. After the signal
// alone it may run on another core long enough to answer one call.
func (p *process) stop() error {
	p.stopped.Store(true) // first, so that no query of the cluster waits for it
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(poll / 10) {
		// The state follows the name, which stands in brackets.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil || bytes.Contains(stat, []byte(") T ")) {
			return nil // without /proc the state is invisible, and the signal must do
		}
	}
	return fmt.Errorf("redistest: process %d does not stop", p.cmd.Process.Pid)
}

func (p *process) cont() error {
	defer p.stopped.Store(false)
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

// output is what a child printed so far. Both of its streams write to it while
// tests read.
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
