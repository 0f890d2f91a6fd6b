package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/peers"
)

// A child is this program once more, as another process of a fleet, or as the
// wire between two. Lines go in and come out; it ends when its input does,
// and so with its parent.
const role = "HEADGATE_BENCH_CHILD"

// child does what the environment says; false if that is nothing.
func child() bool {
	var err error
	switch os.Getenv(role) {
	case "":
		return false
	case "caller":
		err = caller(os.Stdin, os.Stdout)
	case "wire":
		err = wire(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench child:", err)
		os.Exit(1)
	}
	return true
}

// caller is asked "subject address callers nanoseconds", warms up, says
// "ready", waits for a line, measures, and says "passed denied failed
// nanoseconds".
func caller(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	var name, addr string
	var callers int
	var length time.Duration
	if _, err := fmt.Fscanln(lines, &name, &addr, &callers, &length); err != nil {
		return err
	}
	m := peers.RedisRate(peers.Own(addr))
	if ours := peers.Headgate(peers.Own(addr), 1); name == ours.Name {
		m = ours
	}
	s, err := m.Make(peers.Roomy)
	if err != nil {
		return err
	}
	defer s.Close()
	sample := load.Closed{Callers: callers, For: length, Between: func() {
		fmt.Fprintln(out, "ready")
		_, err = lines.ReadString('\n')
	}}.Run(hot(nil), s.Allow)
	fmt.Fprintln(out, sample.Count[load.Passed], sample.Count[load.Denied], sample.Count[load.Failed], int64(sample.Took))
	return err
}

// wire is asked "address nanoseconds", says where it listens, and delays until
// its input ends.
func wire(in io.Reader, out io.Writer) error {
	var addr string
	var delay time.Duration
	if _, err := fmt.Fscanln(in, &addr, &delay); err != nil {
		return err
	}
	ln, err := load.Delay(addr, delay)
	if err != nil {
		return err
	}
	defer ln.Close()
	fmt.Fprintln(out, ln.Addr())
	_, err = io.Copy(io.Discard, in)
	return err
}

// process is a child, seen from its parent.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func spawn(as string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), role+"="+as)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &process{cmd, in, bufio.NewReader(out)}, cmd.Start()
}

func (p *process) close() error {
	_ = p.in.Close() // who is dead doesn't mind
	return p.cmd.Wait()
}

const (
	fleet  = 8
	aboard = 16
)

// inProcesses measures a fleet. Together they decide what each counted, in the
// time of the slowest.
func inProcesses(b *bench, g *guest) (figures, error) {
	crew, err := muster(b, g)
	var sum load.Sample
	for _, p := range crew {
		if err == nil {
			_, err = fmt.Fprintln(p.in, "go")
		}
	}
	for _, p := range crew {
		if err == nil {
			err = p.tell(&sum)
		}
		if ended := p.close(); err == nil {
			err = ended
		}
	}
	if err != nil {
		return figures{}, err
	}
	failed, err := passing(&sum)
	return figures{map[string]float64{decisions: sum.Rate()}, failed}, err
}

// muster starts the fleet and returns when all have warmed up.
func muster(b *bench, g *guest) ([]*process, error) {
	var crew []*process
	for range fleet {
		p, err := spawn("caller")
		if err != nil {
			return crew, err
		}
		crew = append(crew, p)
		if _, err := fmt.Fprintln(p.in, g.Name, b.addr(), aboard, int64(b.length)); err != nil {
			return crew, err
		}
	}
	for _, p := range crew {
		if _, err := p.out.ReadString('\n'); err != nil {
			return crew, err
		}
	}
	return crew, nil
}

// tell adds what a child counted.
func (p *process) tell(sum *load.Sample) error {
	var passed, denied, failed int64
	var took time.Duration
	if _, err := fmt.Fscanln(p.out, &passed, &denied, &failed, &took); err != nil {
		return err
	}
	sum.Count[load.Passed] += passed
	sum.Count[load.Denied] += denied
	sum.Count[load.Failed] += failed
	sum.Took = max(sum.Took, took)
	return nil
}
