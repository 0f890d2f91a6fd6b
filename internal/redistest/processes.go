package redistest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	childEnv   = "HEADGATE_CHILD"
	readyLine  = "redistest: ready"
	resultLine = "result: "
)

// Child returns the number of this process among those that Processes started;
// false in the process that was started by a person. A test that runs itself
// asks here first which of the two it is.
func Child() (int, bool) {
	i, err := strconv.Atoi(os.Getenv(childEnv))
	return i, err == nil
}

// Ready is for children: it returns when all of them have called it, so that
// none is through before the last has begun. Call it once, after the setup.
func Ready() {
	fmt.Println(readyLine)
	// A closed pipe means that the parent is gone, and we are about to be.
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// Result is for children: it hands a line to the parent.
func Result(format string, args ...any) {
	fmt.Println(resultLine + fmt.Sprintf(format, args...))
}

// Processes runs the named test of this binary in n processes of its own, with
// env (NAME=value) added, and returns what each passed to Result, in the order
// of the children, lines of one child joined by newlines. A child that fails
// fails the test. Children die with this process.
func Processes(t testing.TB, n int, testName string, env ...string) []string {
	t.Helper()
	if _, ok := Child(); ok {
		t.Fatal("redistest: Processes within a child, which would start children for ever")
	}
	children := make([]*child, n)
	var ready, ended sync.WaitGroup
	for i := range children {
		children[i] = fork(t, i, testName, env)
		t.Cleanup(children[i].kill)
		ready.Add(1)
		ended.Add(1)
		go func() {
			defer ended.Done()
			children[i].follow(ready.Done)
		}()
	}
	ready.Wait()
	for _, c := range children {
		_ = c.stdin.Close() // the starting shot; who is dead doesn't hear it
	}
	ended.Wait()
	return results(t, children)
}

func results(t testing.TB, children []*child) []string {
	t.Helper()
	out, failed := make([]string, len(children)), false
	for i, c := range children {
		out[i] = strings.Join(c.results, "\n")
		if c.err != nil {
			t.Errorf("child %d: %v\n%s", i, c.err, c.log)
			failed = true
		}
	}
	if failed {
		t.FailNow() // half of the results would only mislead
	}
	return out
}

type child struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	stdout  io.Reader
	log     *output
	results []string
	err     error
	release func()
}

func fork(t testing.TB, i int, testName string, env []string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", exactly(testName), "-test.v", "-test.count=1")
	// The race detector sleeps for a second at the end of a process otherwise.
	cmd.Env = append(os.Environ(), append(env, fmt.Sprintf("%s=%d", childEnv, i), "GORACE=atexit_sleep_ms=0")...)
	c := &child{cmd: cmd, log: new(output)}
	cmd.Stderr = c.log
	var err error
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if c.stdout, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if c.release, err = spawn(cmd); err != nil {
		t.Fatal(err)
	}
	return c
}

// follow reads what the child prints until it ends. A child that ends without
// having been ready counts as ready, or its siblings would wait for ever.
func (c *child) follow(ready func()) {
	once := sync.OnceFunc(ready)
	defer once()
	lines := bufio.NewScanner(c.stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		fmt.Fprintln(c.log, line)
		if line == readyLine {
			once()
		}
		if result, ok := strings.CutPrefix(line, resultLine); ok {
			c.results = append(c.results, result)
		}
	}
	if c.err = lines.Err(); c.err != nil {
		c.kill() // it would block on a pipe that nobody reads
	}
	if err := c.cmd.Wait(); c.err == nil {
		c.err = err
	}
	c.release()
}

func (c *child) kill() { _ = c.cmd.Process.Kill() }

// exactly turns a test's name into the pattern for that test alone: each part
// between slashes is a pattern of its own.
func exactly(name string) string {
	return "^" + strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^") + "$"
}
