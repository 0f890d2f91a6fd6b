package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/flight"
	"github.com/headgate-go/headgate/internal/script"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/redis/go-redis/v9"
)

// topology knows which node has which slot. Reading it takes no lock and
// waits for nobody; it is reloaded beside the decisions.
type topology struct {
	opts  redis.ClusterOptions
	set   script.Settings
	alone bool             // see Options
	now   func() time.Time // nil in production
	owner [slot.Count]atomic.Pointer[node]
	last  atomic.Int64 // when the last reload began, in nanoseconds of time.Since(begin)
	begin time.Time
	mu    struct {
		sync.Mutex
		nodes  map[string]*node
		named  map[string]bool // primaries and replicas of the last answer
		reload chan struct{}   // closed when the one under way ends; nil: none is
		closed bool
	}
}

// node is one server of the cluster.
type node struct {
	addr   string
	client *redis.Client
	server *script.Server
	queue  *flight.Queue
}

const (
	// pause is the least time between two reloads: while nodes fail, every
	// decision asks for one.
	pause = 250 * time.Millisecond
	// stale is the age at which a reload begins though nothing failed.
	stale = 10 * time.Second
)

func newTopology(client Client, set script.Settings, alone bool) *topology {
	t := &topology{opts: *client.Options(), set: set, alone: alone, begin: time.Now()}
	if v, ok := client.(script.VirtualCluster); ok {
		t.now = v.Now
	}
	t.mu.nodes = map[string]*node{}
	t.last.Store(-int64(time.Hour))
	return t
}

// node returns the node at addr, with a client of its own.
func (t *topology) node(addr string) (*node, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return nil, backend.ErrClosed
	}
	n := t.mu.nodes[addr]
	if n == nil {
		n = &node{addr: addr, client: redis.NewClient(tuned(&t.opts, addr, t.set.Budget))}
		var c script.Client = n.client
		if t.now != nil {
			c = script.Virtual{Client: n.client, Now: t.now}
		}
		n.server = script.NewServer(c, addr, t.set)
		n.queue = flight.New(n.server, t, t.set.Budget, t.alone)
		t.mu.nodes[addr] = n
	}
	return n, nil
}

// find is of, for a caller that waits no longer than a decision may take.
func (t *topology) find(ctx context.Context, s int) (*node, error) {
	if n := t.owner[s].Load(); n != nil {
		t.renew()
		return n, nil
	}
	within, cancel := context.WithTimeout(ctx, script.Deadline(0, t.set.Budget))
	defer cancel()
	n, err := t.of(within, s)
	switch {
	case err == nil:
		return n, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("headgate: nothing sent, nothing counted: %w", ctx.Err())
	}
	return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

// renew begins a reload where the last was long ago, though nothing failed.
func (t *topology) renew() {
	if time.Since(t.begin)-time.Duration(t.last.Load()) > stale {
		t.refresh()
	}
}

// of returns the slot's node. Only before the first answer has come it waits
// for one.
func (t *topology) of(ctx context.Context, s int) (*node, error) {
	t.renew()
	if n := t.owner[s].Load(); n != nil {
		return n, nil
	}
	if done := t.refresh(); done != nil {
		select {
		case <-done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if n := t.owner[s].Load(); n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("no node is known for slot %d", s)
}

// refresh begins a reload, unless one is under way or has just been, and
// returns what is closed when it ends; nil where there is none.
func (t *topology) refresh() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Since(t.begin)
	if t.mu.reload != nil || t.mu.closed || now-time.Duration(t.last.Load()) < pause {
		return t.mu.reload
	}
	t.last.Store(int64(now))
	t.mu.reload = make(chan struct{})
	go t.load(t.mu.reload)
	return t.mu.reload
}

// load asks every known node for the slots at once and takes the first
// answer: whoever is frozen is not waited for.
func (t *topology) load(done chan struct{}) {
	defer func() {
		t.mu.Lock()
		t.mu.reload = nil
		t.mu.Unlock()
		close(done)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), max(t.set.Budget, pause))
	defer cancel()
	addrs := t.addrs()
	answers := make(chan answer, len(addrs))
	for _, a := range addrs {
		go func() { answers <- t.ask(ctx, a) }()
	}
	for range addrs {
		select {
		case a := <-answers:
			if a.err == nil && t.adopt(a) == nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

type answer struct {
	from  string
	slots []redis.ClusterSlot
	err   error
}

var errEmpty = errors.New("the node knows of no slots")

func (t *topology) ask(ctx context.Context, addr string) answer {
	n, err := t.node(addr)
	if err != nil {
		return answer{err: err}
	}
	slots, err := n.client.ClusterSlots(ctx).Result()
	if err == nil && len(slots) == 0 {
		err = errEmpty
	}
	return answer{addr, slots, err}
}

// addrs returns the nodes that are known, and the endpoints that the store
// was given.
func (t *topology) addrs() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	addrs := append([]string(nil), t.opts.Addrs...)
	for a := range t.mu.named {
		if !slices.Contains(t.opts.Addrs, a) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// adopt makes an answer the truth, and lets nodes go that it no longer names.
func (t *topology) adopt(a answer) error {
	named := map[string]bool{}
	for _, r := range a.slots {
		for i, member := range r.Nodes {
			addr := announced(member.Addr, a.from)
			named[addr] = true
			if i > 0 {
				continue // a replica: known, but nobody dials it before it is asked
			}
			n, err := t.node(addr)
			if err != nil {
				return err
			}
			for s := r.Start; s <= r.End && s < slot.Count; s++ {
				t.owner[s].Store(n)
			}
		}
	}
	t.drop(named)
	return nil
}

// announced fills in the host of a node that announces none: it is the one
// that was asked.
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

// drop closes the clients of nodes that are neither named nor endpoints. A
// trip that is under way to one of them fails as if the node had.
func (t *topology) drop(named map[string]bool) {
	t.mu.Lock()
	t.mu.named = named
	var gone []*node
	for addr, n := range t.mu.nodes {
		if !named[addr] && !slices.Contains(t.opts.Addrs, addr) {
			delete(t.mu.nodes, addr)
			gone = append(gone, n)
		}
	}
	t.mu.Unlock()
	for _, n := range gone {
		for s := range t.owner { // no trip may find a closed client
			t.owner[s].CompareAndSwap(n, nil)
		}
		_ = n.client.Close()
		t.set.Hub.Gone(n.addr)
	}
}

func (t *topology) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.closed = true
	var first error
	for _, n := range t.mu.nodes {
		if err := n.client.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
