package postgres_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// stoppedBudget is the budget of the processes of TestStoppedBetweenFlushes.
const stoppedBudget = time.Second

// TestStoppedBetweenFlushes: a process that is stopped (SIGSTOP) while it has a key's row locked
// holds it for half of a budget. Other processes decide within a budget each. The stopped process's
// own call is not counted, whether the process goes on before its budget is over or after it.
func TestStoppedBetweenFlushes(t *testing.T) {
	if schema := os.Getenv("HEADGATE_STOPPED"); schema != "" {
		takeByLine(t, schema, os.Getenv("HEADGATE_STOPPED_ADDR"))
		return
	}
	server := postgrestest.Shared(t)
	proxy := postgrestest.NewProxy(t, server.Addr())
	o := &postgres.Options{Schema: schema(), Budget: stoppedBudget}
	stores := make([]*postgres.Store, 3)
	for i := range stores {
		stores[i] = postgres.New(pool(t, server.Addr(), "pool_max_conns=2"), o)
	}
	require.NoError(t, stores[0].Migrate(context.Background()))
	p := startTaker(t, o.Schema, proxy.Addr())
	for range 2 { // which prepares the statements
		for _, s := range stores {
			_, err := ask(s, backend.Take, "k", daily(1<<30))
			require.NoError(t, err)
		}
		require.Equal(t, "counted", p.take(t))
	}
	counted := int64(8)
	var slowest time.Duration
	answers := map[string]int{}
	for i := range redistest.Steps(4, 100) {
		locked := make(chan struct{})
		var once sync.Once
		proxy.Set(func(m postgrestest.Message) postgrestest.Fate {
			// Ready for a query, within a transaction: what the client waits for.
			if m.FromServer && m.Type == 'Z' && string(m.Body) == "T" {
				once.Do(func() { p.stop(t); close(locked) })
			}
			return postgrestest.Pass
		})
		began := time.Now()
		answer := make(chan string)
		go func() { answer <- p.take(t) }()
		<-locked
		for _, took := range takeAll(t, stores) {
			slowest = max(slowest, took)
		}
		if counted += int64(len(stores)); i%2 == 0 {
			time.Sleep(time.Until(began.Add(stoppedBudget)))
		}
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
		text := <-answer
		answers[text]++
		if text == "counted" { // the server had ended its transaction, and it had time for another
			require.Equal(t, 1, i%2, "its budget is over")
			counted++
		}
		require.Equal(t, counted, used(t, stores[0], "k", daily(1<<30)), "what the others took")
		proxy.Set(nil)
	}
	t.Logf("%v; the others waited for at most %v of %v", answers, slowest, stoppedBudget)
	require.Less(t, slowest, stoppedBudget)
}

// takeAll takes one unit by each store at once, and returns how long each call took.
func takeAll(t *testing.T, stores []*postgres.Store) []time.Duration {
	took := make([]time.Duration, len(stores))
	var all sync.WaitGroup
	for i, s := range stores {
		all.Add(1)
		go func() {
			defer all.Done()
			began := time.Now()
			if _, err := ask(s, backend.Take, "k", daily(1<<30)); err != nil {
				t.Error(err)
			}
			took[i] = time.Since(began)
		}()
	}
	all.Wait()
	return took
}

// taker is a process that takes a unit for each line that it reads.
type taker struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func startTaker(t *testing.T, schema, addr string) *taker {
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "HEADGATE_STOPPED="+schema, "HEADGATE_STOPPED_ADDR="+addr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &taker{cmd, in, bufio.NewReader(out)}
}

// take returns what is known of a call of the process.
func (p *taker) take(t *testing.T) string {
	_, err := io.WriteString(p.in, "take\n")
	if err != nil {
		t.Error(err)
	}
	var answer string
	if _, err = fmt.Fscanln(p.out, &answer); err != nil {
		t.Error(err)
	}
	return answer
}

// stop stops the process, and returns when it has stopped.
func (p *taker) stop(t *testing.T) {
	var status syscall.WaitStatus
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
	if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Error("the process has not stopped: ", err, status)
	}
}

// takeByLine is the process that a taker has started.
func takeByLine(t *testing.T, schema, addr string) {
	s := postgres.New(pool(t, addr, "pool_max_conns=2"), &postgres.Options{Schema: schema, Budget: stoppedBudget})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch _, err := ask(s, backend.Take, "k", daily(1<<30)); {
		case err == nil:
			fmt.Println("counted")
		case errors.Is(err, backend.ErrPerhapsCounted):
			fmt.Println("perhaps")
		default:
			fmt.Println("not")
		}
	}
}
