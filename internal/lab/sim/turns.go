package sim

import (
	"context"
	"encoding"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// turns is the hook of a process's clients. Commands that are passed to a client at one
// instant take turns there, each an instant later than the one before. So which of them
// gets which connection follows from what they are.
type turns struct {
	world *World
	proc  int
	addr  string // of the node
}

func (p *process) turns(addr string) redis.Hook { return turns{p.world, p.number, addr} }

func (t turns) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t turns) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.await([]redis.Cmder{cmd})
		return next(ctx, cmd)
	}
}

func (t turns) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.await(cmds)
		return next(ctx, cmds)
	}
}

// await waits for the turn.
func (t turns) await(cmds []redis.Cmder) {
	turn := make(chan struct{})
	var kinds []string
	for _, c := range cmds {
		kinds = append(kinds, kindOf(c))
	}
	slices.Sort(kinds) // the order of one instant's calls is the scheduler's
	what := strings.Join(kinds, "; ")
	t.world.submit(op{proc: t.proc, to: "turns at " + t.addr, what: what, run: func() {
		t.world.at(0, func() {
			t.world.note(fmt.Sprintf("p%d", t.proc), t.addr+": "+what)
			close(turn)
		})
	}})
	<-turn
}

// kindOf is what a command is, without what is packed only when it is written. It also
// lacks the IDs of leases, which are no choice of the seed's.
func kindOf(c redis.Cmder) string {
	args, packed := c.Args(), -1
	if len(args) > 2 {
		if keys, ok := args[2].(*int); ok {
			packed = 3 + *keys + 1
		}
	}
	var words []string
	for i, a := range args {
		switch m, ok := a.(encoding.BinaryMarshaler); {
		case i == packed:
		case ok && packed > 0 && i > 2:
			text, _ := m.MarshalBinary()
			name, _, _ := strings.Cut(string(text), ":l:")
			name, _, _ = strings.Cut(name, ":b:")
			words = append(words, name)
		case i == 0 || packed < 0:
			words = append(words, fmt.Sprintf("%.20v", a))
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}
