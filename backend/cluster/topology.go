package cluster

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/headgate-go/headgate/internal/starved"
	"github.com/headgate-go/headgate/internal/without"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"
)

// topology maps slots to nodes. A lookup takes no lock, and reloads run beside
// the decisions. An entry of owner may be out of date: then the old node
// redirects the call, or fails, and either corrects the entry. nil is a slot
// without a node. mu guards what reloads and redirects share, and no client is
// made or closed under it.
type topology struct {
	opts  redis.ClusterOptions
	set   batch.Settings
	hook  func(addr string) redis.Hook // nil in production
	keeps time.Duration                // see remembered
	owner [slot.Count]atomic.Pointer[node]
	last  atomic.Int64 // when the last reload began, in nanoseconds of time.Since(begin)
	begin time.Time
	mu    struct {
		sync.Mutex
		nodes      map[string]*node
		named      map[string]string        // primaries and replicas of the last answer: address and ID
		redirected map[string]time.Duration // when a redirect last named a node, as time.Since(begin)
		reload     chan struct{}            // closed at the next answer of the reload under way, or its end; nil: none is
		failure    error                    // why the last reload brought no slots
		closed     bool
	}
}

// node is one server of the cluster. It never changes. The topology owns its
// client.
//
// Calls hold a node without a lock or a count. So its client is closed only when the
// longest call that may have found it is over.
type node struct {
	addr   string // as the cluster announces it
	client *redis.Client
	server *batch.Server
	queue  *batch.Queue
	asked  singleflight.Group // for the slots
}

const (
	// pause is the minimum time between two reloads: while nodes fail, every
	// decision requests one.
	pause = 250 * time.Millisecond
	// stale is the age at which the slots are reloaded although nothing failed.
	stale = 10 * time.Second
)

// remembered is how long a node is kept that a redirect names and CLUSTER SLOTS
// does not. A new primary has no slots while it imports its first one.
var remembered = time.Minute

// timed is a client with a clock that the script reads in place of the nodes'. Only the
// library's tests have one. The clock may be nil.
type timed interface{ Clock() func() time.Time }

// hooked is a client with a hook for each node's client, as the simulator has.
type hooked interface{ NodeHook(addr string) redis.Hook }

// newTopology copies the options, since the user may change theirs. last lies
// an hour back, so that the first call reloads without a pause.
//
// It does no I/O: the first call loads the slots.
func newTopology(client Client, set batch.Settings) *topology {
	t := &topology{opts: *client.Options(), set: set, keeps: remembered, begin: time.Now()}
	// NewClusterClient fills in go-redis' default, which is no client of the user's own.
	//mutant:default-client-is-ours
	if reflect.ValueOf(t.opts.NewClient).Pointer() == reflect.ValueOf(redis.NewClient).Pointer() {
		t.opts.NewClient = nil
	}
	if c, ok := client.(timed); ok {
		t.set.Clock = c.Clock()
		t.set.Caller = t.set.Clock
	}
	if c, ok := client.(hooked); ok {
		t.hook = c.NodeHook
	}
	t.mu.nodes = map[string]*node{}
	t.mu.redirected = map[string]time.Duration{}
	t.last.Store(-int64(time.Hour))
	return t
}

// node returns the node at addr, with a client of its own, which it makes if
// there is none. Two goroutines may both make one, since dial runs the user's
// code and so holds no lock. One of them is kept.
func (t *topology) node(addr string) (*node, error) {
	n, err := t.keep(addr, nil)
	if n != nil || err != nil {
		return n, err
	}
	if n, err = t.dial(addr); err != nil {
		return nil, err
	}
	kept, err := t.keep(addr, n)
	if kept != n { // another goroutine was faster, or the store was closed
		_ = n.client.Close()
	}
	return kept, err
}

// keep returns the node at addr. Where there is none, fresh becomes that node.
func (t *topology) keep(addr string, fresh *node) (*node, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return nil, backend.ErrClosed
	}
	if t.mu.nodes[addr] == nil && fresh != nil {
		t.mu.nodes[addr] = fresh
	}
	return t.mu.nodes[addr], nil
}

// dial makes a node and its client. It may run the user's code, so the caller holds
// no lock.
func (t *topology) dial(addr string) (*node, error) {
	newClient := redis.NewClient
	if t.opts.NewClient != nil {
		newClient = t.opts.NewClient
	}
	n := &node{addr: addr}
	err := guarded("NewClient", func() error {
		n.client = newClient(nodeOptions(&t.opts, addr, t.set.Budget))
		return nil
	})
	if err != nil {
		return nil, err
	}
	if n.client == nil {
		return nil, fmt.Errorf("ClusterOptions.NewClient returned no client for %s", addr)
	}
	if t.hook != nil {
		n.client.AddHook(t.hook(addr))
	}
	var c batch.Client = n.client
	if t.opts.NewClient == nil {
		c = client.Made{Client: n.client}
	}
	n.server = batch.NewServer(c, addr, t.set)
	n.queue = batch.NewQueue(n.server, t)
	return n, nil
}

// guarded returns a panic of the user's function as an error. A reload runs on
// the store's goroutine, where a panic would end the process.
func guarded(name string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("ClusterOptions.%s panicked: %v", name, p)
		}
		//mutant:users-error-hidden
		err = without.Password(err)
	}()
	return f()
}

// redirected returns the node that a redirect names. The node is kept for a
// while, whatever CLUSTER SLOTS says.
func (t *topology) redirected(addr string) (*node, error) {
	t.mu.Lock()
	t.mu.redirected[addr] = time.Since(t.begin)
	t.mu.Unlock()
	return t.node(addr)
}

// pauses returns the time between two reloads. On a starved host calls fail although no slot has
// moved, and the reloads of many processes keep the processors from the nodes.
func pauses() time.Duration {
	//mutant:reloads-seldom-on-starved-host
	if starved.Host() {
		return 4 * pause
	}
	return pause
}

// refresh begins a reload, unless one is in progress or the last one was less than
// pause ago. It returns a channel that is closed when the reload has its next answer or ends,
// or nil.
//
// While all nodes fail, callers wait for a reload that may bring new nodes, at most four
// times per second, once on a starved host. Between two reloads they get nil, and fail at once with the cause of
// the last one.
func (t *topology) refresh() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Since(t.begin)
	//mutant:reloads-paced
	if t.mu.reload != nil || t.mu.closed || now-time.Duration(t.last.Load()) < pauses() {
		return t.mu.reload
	}
	t.last.Store(int64(now))
	t.mu.reload = make(chan struct{})
	go t.load()
	return t.mu.reload
}

// reloading is refresh without a new reload.
func (t *topology) reloading() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.reload
}

// reloaded wakes those that wait for an answer of the reload under way. next is the channel
// of its next answer, nil after the last one.
func (t *topology) reloaded(next chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.mu.reload)
	t.mu.reload = next
}

// adopt stores the owners that an answer names, and returns the nodes that it names
// and how many slots it covers. Slots that the answer leaves out keep their owner: a
// cluster in the middle of a failover names only a part. A node whose client can't be
// made leaves the rest of the answer unused, and the next source is tried.
//
// The entries are stored one by one, without a lock. A call in between finds the old owner
// or the new one. Either answers, or redirects.
func (t *topology) adopt(a answer) (named map[string]string, covered int, err error) {
	named = map[string]string{}
	for _, r := range a.slots {
		for i, member := range r.Nodes {
			addr := announced(member.Addr, a.from)
			named[addr] = member.ID
			if i > 0 {
				continue // a replica, which is dialled only for its slots
			}
			n, err := t.node(addr)
			if err != nil {
				return nil, 0, err
			}
			n.server.Warm()
			for s := max(r.Start, 0); s <= r.End && s < slot.Count; s++ {
				t.owner[s].Store(n)
				covered++
			}
		}
	}
	return named, covered, nil
}

// drop removes the nodes that neither an answer nor a recent redirect names. An
// endpoint keeps its client, as the store asks endpoints for the slots, and
// loses its circuit.
//
// A dropped node leaves the table at once. It keeps its client for two budgets, in which
// calls that have found it before may still send.
func (t *topology) drop(named map[string]string) {
	var gone []*node
	t.mu.Lock()
	t.mu.named = named
	for addr, at := range t.mu.redirected {
		//mutant:redirects-forgotten
		if time.Since(t.begin)-at > t.keeps {
			delete(t.mu.redirected, addr)
		}
	}
	for addr, n := range t.mu.nodes {
		_, stays := named[addr]
		if _, redirected := t.mu.redirected[addr]; stays || redirected {
			continue
		}
		gone = append(gone, n)
		if !slices.Contains(t.opts.Addrs, addr) {
			delete(t.mu.nodes, addr)
		}
	}
	t.mu.Unlock()
	for _, n := range gone {
		for s := range t.owner {
			t.owner[s].CompareAndSwap(n, nil)
		}
		// By then the calls that have found the node before are over, and so are
		// their batches.
		//mutant:dropped-node-finishes
		time.AfterFunc(2*t.set.Budget, func() { t.release(n) })
	}
}

// release closes the client of a node that was dropped, unless it is an
// endpoint's, and forgets its circuit.
func (t *topology) release(n *node) {
	if !slices.Contains(t.opts.Addrs, n.addr) {
		_ = t.hangUp(n)
	}
	t.set.Shared.Gone(n.addr)
}

// hangUp closes the client of a node.
func (t *topology) hangUp(n *node) error {
	if t.opts.NewClient != nil { // it may have another dialer
		return n.client.Close()
	}
	return client.Close(n.client)
}

// close closes all clients. closed keeps a reload that is still under way from
// adding more.
//
// Nodes that were dropped are closed by their timers.
func (t *topology) close() error {
	t.mu.Lock()
	t.mu.closed = true
	nodes := slices.Collect(maps.Values(t.mu.nodes))
	t.mu.Unlock()
	errs := make([]error, len(nodes))
	layer.Parallel(len(nodes), func(i int) { errs[i] = t.hangUp(nodes[i]) }) // each waits for its calls
	return errors.Join(errs...)
}

// errForeign is the error of a node of another cluster: the address of one that has
// left is in use again.
var errForeign = errors.New("it names none of the cluster's nodes")

// foreign reports whether an answer names no node that the last one named. Endpoints
// are the user's word, and may lead to a cluster that has replaced another.
func (t *topology) foreign(a answer) bool {
	if a.from == "" || slices.Contains(t.opts.Addrs, a.from) {
		return false
	}
	t.mu.Lock()
	ids := slices.Collect(maps.Values(t.mu.named))
	t.mu.Unlock()
	known := slices.ContainsFunc(a.slots, func(r redis.ClusterSlot) bool {
		return slices.ContainsFunc(r.Nodes, func(n redis.ClusterNode) bool { return slices.Contains(ids, n.ID) })
	})
	return len(ids) > 0 && !known
}
