// Package fleet runs callers of one limiter in several processes, as a service
// with several instances has them, and adds up what they counted. Goroutines of
// one process can't stand in for processes: their calls would share batches.
package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/headgate-go/headgate/bench/load"
)

// Order is what one process does. It is sent as JSON. A binary of another
// commit ignores fields that it lacks, and takes the zero value of those that
// are not sent.
type Order struct {
	Subject  string // "headgate" or "redis_rate"
	Addrs    []string
	Cluster  bool // Addrs are a cluster's
	Policies int
	Keys     string // as load.Named takes it
	N        int    // number of keys
	Callers  int
	For      time.Duration
	Fill     bool // fill the keys first
}

// Result is what one process counted.
type Result struct {
	Count [3]int64 // by load.Answer
	Took  time.Duration
}

// Run starts the processes, lets each warm up, and has all measure at once. The
// sum of their decisions is divided by the time of the slowest. The first process fills
// the keys, and the others start after it: a fill beside their warm-up would find its
// keys half made.
func Run(command func() *exec.Cmd, processes int, o Order) (load.Sample, error) {
	var all []*process
	defer func() {
		for _, p := range all {
			p.close()
		}
	}()
	for range processes {
		p, err := start(command(), o)
		if err != nil {
			return load.Sample{}, err
		}
		all = append(all, p)
		if o.Fill {
			if err := p.ready(); err != nil {
				return load.Sample{}, err
			}
		}
		o.Fill = false
	}
	return measure(all)
}

// measure waits until every process is warm, then starts all of them. A process
// that measured while others still start would have the server to itself.
func measure(all []*process) (load.Sample, error) {
	var sum load.Sample
	for _, p := range all {
		if err := p.ready(); err != nil {
			return sum, err
		}
	}
	for _, p := range all {
		if err := p.out.Encode(true); err != nil {
			return sum, err
		}
	}
	for _, p := range all {
		var r Result
		if err := p.in.Decode(&r); err != nil {
			return sum, fmt.Errorf("a process of the fleet ended early: %w", err)
		}
		for a, n := range r.Count {
			sum.Count[a] += n
		}
		sum.Took = max(sum.Took, r.Took)
	}
	return sum, nil
}

// process is a member of the fleet, as its parent sees it. The protocol is one
// JSON value per line. They are the order, true from the child when it is warm,
// true from the parent to begin, and the child's Result. The child ends when
// its input does, so none outlives its parent.
type process struct {
	cmd  *exec.Cmd
	pipe io.Closer
	out  *json.Encoder
	in   *json.Decoder
	warm bool
}

// start runs a command and sends its order.
func start(cmd *exec.Cmd, o Order) (*process, error) {
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, pipe: stdin, out: json.NewEncoder(stdin), in: json.NewDecoder(stdout)}
	return p, p.out.Encode(o)
}

// ready returns when the process has warmed up.
func (p *process) ready() error {
	if p.warm {
		return nil
	}
	p.warm = true
	var yes bool
	if err := p.in.Decode(&yes); err != nil {
		return fmt.Errorf("a process of the fleet did not start: %w", err)
	}
	return nil
}

// close ends the child by the end of its input. Its exit status says nothing
// that a missing result has not said before.
func (p *process) close() {
	_ = p.pipe.Close()
	_ = p.cmd.Wait()
}
