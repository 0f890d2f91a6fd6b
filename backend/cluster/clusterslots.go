package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/headgate-go/headgate/internal/chance"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/redis/go-redis/v9"
)

// answer is the reply of a node, or of the user's ClusterSlots, for the slots.
// The addresses are as the source announces them; adopt completes those without
// a host.
//
// An answer belongs to the goroutine that receives it from the channel.
type answer struct {
	from  string // the node; empty for the user's ClusterSlots
	slots []redis.ClusterSlot
	err   error
}

// load reloads the slots from the first source that names them all, on a goroutine
// of its own. It takes no decision's time. A node that has just joined names only
// some: then the others' answers count too. Late answers are dropped:
// their channel has room for all, so none of them blocks. Callers that wait are woken after
// each answer in part, and last, when they can read the owners, or the cause of the failure.
//
// At most one load runs at a time; refresh sees to that. The first answer that covers all
// slots ends it. An answer in part is adopted too, since a cluster in the middle of a
// failover has no better one.
func (t *topology) load() {
	within := max(t.set.Budget, pause)
	ctx, cancel := layer.Within(context.Background(), within, within)
	defer cancel()
	defer t.reloaded(nil)
	sources := t.sources()
	answers, next := make(chan answer, len(sources)), make(chan struct{}, len(sources))
	go t.inTurn(ctx, sources, answers, next)
	all := map[string]string{} // the nodes that answers in part name
	for range sources {
		var a answer
		select {
		case a = <-answers:
			next <- struct{}{}
		case <-ctx.Done():
			a.err = fmt.Errorf("asking for the slots (%s): %w", strings.Join(t.addrs(), ", "), ctx.Err())
		}
		named, covered := map[string]string(nil), 0
		if a.err == nil {
			named, covered, a.err = t.adopt(a)
		}
		//mutant:reload-cause
		t.fail(a.err)
		if a.err != nil {
			continue
		}
		//mutant:partial-answers
		if covered >= slot.Count {
			t.drop(named)
			return
		}
		//mutant:partial-answer-wakes
		t.reloaded(make(chan struct{}))
		maps.Copy(all, named)
	}
	if len(all) > 0 {
		t.drop(all)
	}
}

// inTurn asks one source after the other, until ctx ends: the next one after an answer, or after
// a quarter of the budget without one. So a frozen node delays a reload little, and a fleet that
// reloads at one instant asks few nodes.
func (t *topology) inTurn(ctx context.Context, sources []func(context.Context) answer, answers chan<- answer, answered <-chan struct{}) {
	for _, ask := range sources {
		go func() { answers <- ask(ctx) }()
		select {
		//mutant:slots-asked-in-turn
		case <-time.After(t.set.Budget / 4):
		case <-answered:
		case <-ctx.Done():
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

// sources returns the sources of the slots: the user's ClusterSlots, else all nodes, beginning
// with a random one.
//
// A user's ClusterSlots replaces the nodes' answers, as it does in go-redis.
func (t *topology) sources() (sources []func(context.Context) answer) {
	//mutant:cluster-slots-option
	if t.opts.ClusterSlots != nil {
		return append(sources, t.askUser)
	}
	addrs := t.addrs()
	slices.Sort(addrs)
	first := chance.IntN(max(len(addrs), 1))
	for _, addr := range append(addrs[first:], addrs[:first]...) {
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

// errEmpty keeps a node that was just reset, or that is in no cluster, from
// clearing the table.
var errEmpty = errors.New("it names no slots")

// askUser calls the user's ClusterSlots, which may panic, or return nothing.
func (t *topology) askUser(ctx context.Context) (a answer) {
	err := guarded("ClusterSlots", func() (err error) {
		a.slots, err = t.opts.ClusterSlots(ctx)
		for i := 0; err == nil && i < len(a.slots); i++ {
			//mutant:slots-without-url
			err = checkNodes(a.slots[i].Nodes)
		}
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

// checkNodes refuses an address that is a URL, in which a password may stand. Such an
// address would appear in the names of circuits.
func checkNodes(nodes []redis.ClusterNode) (err error) {
	for i := 0; err == nil && i < len(nodes); i++ {
		err = client.CheckAddr("", nodes[i].Addr)
	}
	return err
}

// ask returns a node's answer to CLUSTER SLOTS. Replicas answer it as well as primaries. A
// node is asked once at a time. Over a long link the connection that a reload began takes
// longer than the reload, and the next one has its answer.
//
// The error names the node, the command and the missing right. It is what a caller gets if
// no source answers.
func (t *topology) ask(ctx context.Context, addr string) answer {
	n, err := t.node(addr)
	if err != nil {
		return answer{err: err}
	}
	asked := n.asked.DoChan("", func() (any, error) { return n.slots(max(t.set.Budget, pause)) })
	var reply []any
	select {
	case r := <-asked:
		reply, err = r.Val.([]any), r.Err
	case <-ctx.Done():
		err = ctx.Err()
	}
	//mutant:right-to-slots
	if redis.HasErrorPrefix(err, "NOPERM") {
		err = &backend.RightError{Node: addr, Rights: []string{"+cluster|slots"}, Err: err}
	}
	a := answer{from: addr}
	if err == nil {
		a.slots, err = parse(reply)
	}
	//mutant:foreign-answers
	if err == nil && t.foreign(a) {
		err = errForeign
	}
	if err != nil {
		a.err = fmt.Errorf("CLUSTER SLOTS at %s: %w", addr, err)
	}
	return a
}

// slots sends CLUSTER SLOTS. go-redis' own ClusterSlots fails on a node without an address.
// It is sent past the queue and the circuit, since an open circuit may be why the slots are
// needed.
func (n *node) slots(within time.Duration) (reply []any, err error) {
	var cmd *redis.SliceCmd
	err = n.server.Send(within, "slots", func(ctx context.Context, slots any) redis.Cmder {
		cmd = redis.NewSliceCmd(ctx, "cluster", slots)
		return cmd
	})
	return cmd.Val(), err
}

var errSlots = errors.New("it is malformed")

// parse reads the reply of CLUSTER SLOTS: for each range its first and last
// slot, then its nodes.
//
// A reply that is malformed in one place is not used at all. Ranges beyond the last slot
// are left to adopt, which ignores them.
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
			node, err := member(n)
			if err != nil {
				return nil, err
			}
			s.Nodes = append(s.Nodes, node)
		}
		slots = append(slots, s)
	}
	if len(slots) == 0 {
		return nil, errEmpty
	}
	return slots, nil
}

// member reads the address and the ID of a node. Its host is nil where the cluster's
// preferred endpoint type is unknown-endpoint. It is "?" where that is hostname and
// the node has none; then its IP stands beside.
//
// The ID is empty if the reply has none.
func member(n any) (node redis.ClusterNode, err error) {
	f, _ := n.([]any)
	if len(f) < 2 {
		return node, errSlots
	}
	host, _ := f[0].(string)
	port, ok := f[1].(int64)
	if !ok {
		return node, errSlots
	}
	if len(f) > 2 {
		node.ID, _ = f[2].(string)
	}
	//mutant:no-hostname
	if host == "?" && len(f) > 3 {
		host = ipBeside(f[3])
	}
	node.Addr = net.JoinHostPort(host, fmt.Sprint(port))
	return node, nil
}

// ipBeside returns the IP in a node's metadata: pairs in RESP2, a map in RESP3.
func ipBeside(metadata any) string {
	if m, ok := metadata.(map[any]any); ok {
		ip, _ := m["ip"].(string)
		return ip
	}
	pairs, _ := metadata.([]any)
	for i := 0; i+1 < len(pairs); i += 2 {
		if ip, ok := pairs[i+1].(string); ok && pairs[i] == "ip" {
			return ip
		}
	}
	return ""
}

// announced returns the address of a node. A node that announces no host has
// the host of the node that answered.
//
// A MOVED of such a node has an empty host too, and means the node that replied.
func announced(addr, from string) string {
	i := strings.LastIndexByte(addr, ':') // MOVED writes IPv6 without brackets
	if i < 0 {
		return addr
	}
	host := strings.Trim(addr[:i], "[]")
	if host == "" {
		var err error
		if host, _, err = net.SplitHostPort(from); err != nil {
			return addr
		}
	}
	return net.JoinHostPort(host, addr[i+1:])
}
