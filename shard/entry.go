package shard

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/slot"
)

// How long what was heard of a sub-key stands at most, and for how long one
// that nobody answered for is left alone while others live.
const (
	longest = time.Second
	deadFor = 100 * time.Millisecond
)

// entry is what is known of one key by one plan.
type entry struct {
	key     string // or its hash
	hashed  bool
	plan    *plan
	salts   *slot.Salts
	home    int // slots; see name
	offset  int
	recent  atomic.Bool
	rooms   []atomic.Int64 // what remained when last seen, one a policy for each share
	left    []atomic.Int64 // their sums, one a policy
	subs    []sub
	heard   atomic.Uint64           // how often of room where there was a denial
	verdict atomic.Pointer[verdict] // while it is not nil every sub-key is spent, or dead
	mu      struct {
		sync.Mutex
		reading *reading // the sum under way
	}
}

// sub is what is known against asking one sub-key.
type sub struct {
	shut atomic.Pointer[shut]
	dead atomic.Pointer[death]
	room atomic.Int64 // when an answer last showed room for what was denied
}

type death struct {
	at  time.Duration
	err error
}

func newEntry(key string, p *plan) *entry {
	k, n := len(p.parts), len(p.policies)
	salts := slot.Names(k)
	e := &entry{key: key, plan: p, salts: salts, home: salts.Home(key), offset: int(xxhash.Sum64String(key) % slot.Count)}
	e.rooms, e.left, e.subs = make([]atomic.Int64, k*n), make([]atomic.Int64, n), make([]sub, k)
	for i := range e.subs {
		for j := range n {
			e.room(i, j, p.most(i, j))
		}
	}
	return e
}

func (e *entry) cells() int64 {
	if e == nil {
		return 0
	}
	return int64(len(e.rooms))
}

// name returns the name of the i-th sub-key, which holds how many there are. Its slot is i K-ths of the range
// from a place that the key's hash says, in every process: points that lie
// evenly put as many on a node as its part of the range holds, but for one,
// whatever the key is.
func (e *entry) name(i int) string {
	return e.salts.Name(e.home, (e.offset+i*slot.Count/len(e.subs))%slot.Count)
}

// room notes what remains of a policy in a share.
func (e *entry) room(i, j int, n int64) {
	was := e.rooms[i*len(e.left)+j].Swap(n)
	e.left[j].Add(n - was)
}

// spare returns how much more than g asks was last seen in a share, in the
// policy that has the least.
func (e *entry) spare(i int, g *backend.Group) int64 {
	n := len(e.left)
	least := e.rooms[i*n].Load() - g.CostOf(0)
	for j := 1; j < n; j++ {
		least = min(least, e.rooms[i*n+j].Load()-g.CostOf(j))
	}
	return least
}
