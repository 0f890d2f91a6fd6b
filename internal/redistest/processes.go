package redistest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The environment tells a child its number. It reports by lines on stdout with
// a prefix, between the lines that package testing prints.
const (
	childEnv   = "HEADGATE_CHILD"
	readyLine  = "redistest: ready"
	resultLine = "result: "
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

// Result hands a line from a child to its parent.
func Result(format string, args ...any) {
	fmt.Println(resultLine + fmt.Sprintf(format, args...))
}

// Processes runs the named test of this binary in n processes, with env
// (NAME=value) added. It returns what each child passed to Result, joined by
// newlines. A child that fails makes the test fail. All end with the test.
func Processes(t testing.TB, n int, testName string, env ...string) []string {
	t.Helper()
	if _, ok := Child(); ok {
		t.Fatal("redistest: Processes within a child, which would start children for ever")
	}
	children, gates := make([]*process, n), make([]io.Closer, n)
	for i := range children {
		children[i], gates[i] = fork(t, i, testName, env)
		t.Cleanup(children[i].kill)
	}
	for _, c := range children {
		// A child that ends without a call of Ready must not block the others.
		for c.alive() && !strings.Contains(c.log.String(), readyLine) {
			time.Sleep(poll)
		}
	}
	for _, g := range gates {
		_ = g.Close() // Ready returns
	}
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
		for line := range strings.Lines(c.log.String()) {
			if result, ok := strings.CutPrefix(line, resultLine); ok {
				lines = append(lines, strings.TrimSuffix(result, "\n"))
			}
		}
		out[i] = strings.Join(lines, "\n")
		if c.err != nil {
			t.Errorf("child %d: %v\n%s", i, c.err, &c.log)
		}
	}
	if t.Failed() {
		t.FailNow() // results of some children only would mislead
	}
	return out
}

// fork starts a child that waits in Ready until gate is closed.
func fork(t testing.TB, i int, testName string, env []string) (child *process, gate io.Closer) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", exactly(testName), "-test.v", "-test.count=1")
	// The race detector otherwise sleeps for a second at the end of a process.
	cmd.Env = append(os.Environ(), append(env, fmt.Sprintf("%s=%d", childEnv, i), "GORACE=atexit_sleep_ms=0")...)
	gate, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if child, err = start(cmd); err != nil {
		t.Fatal(err)
	}
	return child, gate
}

// exactly turns a test's name into the pattern for that test alone. Each part
// between slashes is a pattern of its own.
func exactly(name string) string {
	return "^" + strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^") + "$"
}
