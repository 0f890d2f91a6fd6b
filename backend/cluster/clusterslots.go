package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/redis/go-redis/v9"
)

// answer is the reply of a node, or of the user's ClusterSlots, for the slots.
// The addresses are as the source announces them; adopt completes those without
// a host.
type answer struct {
	from  string // the node; empty for the user's ClusterSlots
	slots []redis.ClusterSlot
	err   error
}

// load reloads the slots from the first source that answers, on a goroutine of
// its own. It takes no decision's time. The others' answers are dropped: their
// channel has room for all, so none of them blocks. done is closed last, when
// callers that wait for it can read the owners, or the cause of the failure.
func (t *topology) load(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), max(t.set.Budget, pause))
	defer cancel()
	defer func() {
		t.mu.Lock()
		t.mu.reload = nil
		t.mu.Unlock()
		close(done)
	}()
	sources := t.sources()
	answers := make(chan answer, len(sources))
	for _, ask := range sources {
		go func() { answers <- ask(ctx) }()
	}
	for range sources {
		select {
		case a := <-answers:
			if a.err == nil {
				a.err = t.adopt(a)
			}
			if t.fail(a.err); a.err == nil { // mutant: reload-cause
				return
			}
		case <-ctx.Done():
			t.fail(fmt.Errorf("asking for the slots: %w", ctx.Err()))
			return
		}
	}
}

// fail stores the cause for which the last reload failed; nil where it
// succeeded. Of several sources that fail it is the last one's.
func (t *topology) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.failure = err
}

// sources returns the sources of the slots: the user's ClusterSlots, else all nodes
// at once, so that a frozen node delays no reload.
func (t *topology) sources() (sources []func(context.Context) answer) {
	if t.opts.ClusterSlots != nil { // mutant: cluster-slots-option
		return append(sources, t.askUser)
	}
	for _, addr := range t.addrs() {
		sources = append(sources, func(ctx context.Context) answer { return t.ask(ctx, addr) })
	}
	return sources
}

// addrs returns the endpoints of the store's options and the nodes of the last
// answer, each once. The endpoints stay for ever: when all other nodes were
// replaced, they may be the only way back.
func (t *topology) addrs() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	addrs := slices.Clone(t.opts.Addrs)
	for a := range t.mu.named {
		if !slices.Contains(t.opts.Addrs, a) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// errEmpty keeps a node that was just reset, or that knows no cluster, from
// clearing the table.
var errEmpty = errors.New("it names no slots")

// askUser calls the user's ClusterSlots, which may panic, or return nothing.
func (t *topology) askUser(ctx context.Context) (a answer) {
	err := guarded("ClusterSlots", func() (err error) {
		a.slots, err = t.opts.ClusterSlots(ctx)
		return err
	})
	if err == nil && len(a.slots) == 0 {
		err = errEmpty
	}
	if err != nil {
		a.err = fmt.Errorf("ClusterOptions.ClusterSlots: %w", err)
	}
	return a
}

// ask sends CLUSTER SLOTS to one node. Replicas answer it as well as primaries.
func (t *topology) ask(ctx context.Context, addr string) answer {
	n, err := t.node(addr)
	if err != nil {
		return answer{err: err}
	}
	// go-redis' own ClusterSlots fails on a node without an address.
	cmd := redis.NewSliceCmd(ctx, "cluster", "slots")
	err = client.Process(ctx, n.client, cmd)
	a := answer{from: addr}
	if err == nil {
		a.slots, err = parse(cmd.Val())
	}
	if err != nil {
		a.err = fmt.Errorf("CLUSTER SLOTS at %s: %w", addr, err)
	}
	return a
}

var errSlots = errors.New("it is malformed")

// parse reads the reply of CLUSTER SLOTS: for each range its first and last
// slot, then its nodes.
func parse(reply []any) (slots []redis.ClusterSlot, err error) {
	for _, r := range reply {
		f, _ := r.([]any)
		if len(f) < 3 {
			return nil, errSlots
		}
		start, ok1 := f[0].(int64)
		end, ok2 := f[1].(int64)
		if !ok1 || !ok2 || start < 0 || end < start {
			return nil, errSlots
		}
		s := redis.ClusterSlot{Start: int(start), End: int(end)}
		for _, n := range f[2:] {
			addr, err := member(n)
			if err != nil {
				return nil, err
			}
			s.Nodes = append(s.Nodes, redis.ClusterNode{Addr: addr})
		}
		slots = append(slots, s)
	}
	if len(slots) == 0 {
		return nil, errEmpty
	}
	return slots, nil
}

// member reads the address of a node. Its host is nil where the cluster's
// preferred endpoint type is unknown-endpoint.
func member(n any) (addr string, err error) {
	f, _ := n.([]any)
	if len(f) < 2 {
		return "", errSlots
	}
	host, _ := f[0].(string)
	port, ok := f[1].(int64)
	if !ok {
		return "", errSlots
	}
	return net.JoinHostPort(host, fmt.Sprint(port)), nil
}

// announced returns the address of a node. A node that announces no host has
// the host of the node that answered.
func announced(addr, from string) string {
	i := strings.LastIndexByte(addr, ':') // MOVED writes IPv6 without brackets
	if i < 0 {
		return addr
	}
	host := strings.Trim(addr[:i], "[]")
	if host == "" || host == "?" {
		var err error
		if host, _, err = net.SplitHostPort(from); err != nil {
			return addr
		}
	}
	return net.JoinHostPort(host, addr[i+1:])
}
