package redistest

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// poll is the pause between two looks at a process. A server is up in 20 ms.
const poll = 2 * time.Millisecond

// process is a child of this process. The caller of start owns it and kills it.
// err is read only after exited is closed.
type process struct {
	cmd     *exec.Cmd
	out     *os.File // what it wrote, without a name
	stopped atomic.Bool
	exited  chan struct{} // closed when err is set
	err     error
}

// start runs a command whose output is kept. One goroutine waits for its end,
// as Wait may be called only once.
func start(cmd *exec.Cmd) (*process, error) {
	// Never our own stdout: `go test` waits until every process has closed it.
	out, err := os.CreateTemp("", "redistest")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(out.Name())
	p := &process{cmd: cmd, out: out, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, out
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

func (p *process) log() string {
	log, _ := io.ReadAll(io.NewSectionReader(p.out, 0, math.MaxInt64))
	return string(log)
}

// kill also ends a stopped process. It returns when the process has exited, so
// that its port is free.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only for a dead process
	<-p.exited
}

func (p *process) prefer() { _ = syscall.Setpriority(syscall.PRIO_PROCESS, p.cmd.Process.Pid, -15) }

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// stop suspends the process and returns when it is suspended. After the signal it may
// still run on another core for long enough to answer one call.
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

// The environment tells a child its number. It reports by lines on stdout with
// a prefix, between the lines that package testing prints.
const (
	childEnv   = "HEADGATE_CHILD"
	readyLine  = "redistest: ready"
	resultLine = "result: "
	killedLine = "redistest: killed itself"
)

// Child returns the number of this process among those that Processes started.
// It returns false in the parent. A test that runs itself in children calls it
// first, to find out which of the two it is.
func Child() (int, bool) {
	i, err := strconv.Atoi(os.Getenv(childEnv))
	return i, err == nil
}

// Ready returns when all children have called it, so that none ends before the
// last has begun. A child calls it once, after its setup.
func Ready() {
	fmt.Println(readyLine)
	// A closed pipe also means that the parent has ended.
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// Result passes a line from a child to its parent.
func Result(format string, args ...any) {
	fmt.Println(resultLine + fmt.Sprintf(format, args...))
}

// Die ends this process at once, as SIGKILL does: nothing is cleaned up. Processes
// takes what the child passed to Result before.
func Die() {
	fmt.Println(killedLine)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// Processes runs the named test of this binary in n processes, with env
// (NAME=value) added. It returns what each child passed to Result, joined by
// newlines. A child that fails makes the test fail. All end with the test.
func Processes(t testing.TB, n int, testName string, env ...string) []string {
	t.Helper()
	if _, ok := Child(); ok {
		t.Fatal("redistest: Processes within a child, which would start children for ever")
	}
	gate, shut, err := os.Pipe() // closed, it lets each Ready return
	check(t, err)
	defer gate.Close()
	children := make([]*process, n)
	for i := range children {
		cmd := exec.Command(os.Args[0], "-test.run", exactly(testName), "-test.v", "-test.count=1")
		// The race detector otherwise sleeps for a second at the end of a process.
		cmd.Env = append(os.Environ(), append(env, fmt.Sprintf("%s=%d", childEnv, i), "GORACE=atexit_sleep_ms=0")...)
		cmd.Stdin = gate
		children[i], err = start(cmd)
		check(t, err)
		t.Cleanup(children[i].kill)
	}
	for _, c := range children {
		// A child that ends without a call of Ready must not block the others.
		for c.alive() && !strings.Contains(c.log(), readyLine) {
			time.Sleep(poll)
		}
	}
	_ = shut.Close()
	return results(t, children)
}

// results waits for all children, also after one has failed: their logs show
// why.
func results(t testing.TB, children []*process) []string {
	t.Helper()
	out := make([]string, len(children))
	for i, c := range children {
		<-c.exited
		var lines []string
		for line := range strings.Lines(c.log()) {
			if result, ok := strings.CutPrefix(line, resultLine); ok {
				lines = append(lines, strings.TrimSuffix(result, "\n"))
			}
		}
		out[i] = strings.Join(lines, "\n")
		if c.err != nil && !strings.Contains(c.log(), killedLine) {
			t.Errorf("child %d: %v\n%s", i, c.err, c.log())
		}
	}
	if t.Failed() {
		t.FailNow() // results of some children only would mislead
	}
	return out
}

// exactly turns a test's name into the pattern for that test only. Each part
// between slashes is a pattern of its own.
func exactly(name string) string {
	return "^" + strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^") + "$"
}
