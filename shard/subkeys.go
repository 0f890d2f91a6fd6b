package shard

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/slot"
	"golang.org/x/sync/singleflight"
)

// hotKey is what this process remembers of one key under one list of policies.
//
// Rooms are estimates. An answer sets a share's room to what the store said, which
// leaves out the claims of calls in flight, and other processes take units too. So
// rooms choose which share is asked, and never deny a call: only denials of the store
// do, for as long as they hold. All fields after policies are atomics or pointers to
// immutable values. Their updates need no order among each other.
type hotKey struct {
	key      string
	policies []backend.Policy                   // never written
	parts    []atomic.Pointer[[]backend.Policy] // the list of each share, made when it is first asked
	salts    *slot.Salts
	home     int // slots; see sub
	offset   int
	recent   atomic.Bool    // asked for, of late; see memory
	rooms    []atomic.Int64 // what remained when last seen, one per policy for each share
	left     []atomic.Int64 // their sums, one per policy
	fresh    []atomic.Int64 // beside rooms, when what was last seen counts no more; 0: nothing was
	subs     []subKey
	calls    atomic.Int32       // in flight
	dealt    atomic.Uint64      // sub-keys up to now
	turn     atomic.Int32       // the sub-key that calls use
	joins    atomic.Int64       // how many more of them
	ends     atomic.Int64       // until when
	sums     singleflight.Group // of the readings of all sub-keys that may have room, by costs
	cache    *denial.Cache      // of the key's store, with its clock
	denials  *denial.Set        // of the whole key
}

// subKey is what speaks against asking one sub-key.
type subKey struct {
	denied  atomic.Pointer[denial.Denial] // its last one
	avoided atomic.Int64                  // until when; see avoidFor
}

// avoidFor is for how long a sub-key without an answer is avoided while others
// have room.
const avoidFor = 100 * time.Millisecond

func newHotKey(key string, policies []backend.Policy, cache *denial.Cache) *hotKey {
	n, shares := len(policies), policies[0].Shards
	salts := slot.Names(shares)
	k := &hotKey{key: key, policies: policies, salts: salts, home: salts.Home(key), cache: cache, denials: cache.At(key)}
	k.offset = int(xxhash.Sum64String(key) % slot.Count)
	k.subs, k.parts = make([]subKey, shares), make([]atomic.Pointer[[]backend.Policy], shares)
	k.rooms, k.left, k.fresh = make([]atomic.Int64, shares*n), make([]atomic.Int64, n), make([]atomic.Int64, shares*n)
	for i := range shares {
		for j := range n {
			k.refill(i, j)
		}
	}
	k.dealt.Store(rand.Uint64()) // or all processes would use the same sub-key at once
	return k
}

// lists reports whether k is of these policies.
func (k *hotKey) lists(policies []backend.Policy) bool {
	return len(k.policies) == len(policies) && (&k.policies[0] == &policies[0] || slices.Equal(k.policies, policies))
}

func (k *hotKey) cells() int64 {
	if k == nil {
		return 0
	}
	return int64(len(k.rooms))
}

// sub returns the name of the i-th sub-key, which contains the number of shares.
// Its slot is i K-ths of the range from an offset that the key's hash gives, in
// every process. Points at equal distances put as many on a node as its part of the
// range holds, or one more, for every key.
func (k *hotKey) sub(i int) string {
	return k.salts.Name(k.home, (k.offset+i*slot.Count/len(k.subs))%slot.Count)
}

// part returns the policies of the i-th share. It is one list for all calls, since
// stores compare lists by address first.
func (k *hotKey) part(i int) []backend.Policy {
	if l := k.parts[i].Load(); l != nil {
		return *l
	}
	l := slices.Clone(k.policies)
	for j := range l {
		l[j].Algorithm, l[j].Shards = l[j].Algorithm.Part(int64(i), int64(len(k.parts))), 0
	}
	k.parts[i].CompareAndSwap(nil, &l)
	return *k.parts[i].Load()
}

// share returns the limit or burst of the i-th share of a policy, as
// Algorithm.Part has it.
func share(p *backend.Policy, i int) int64 {
	n, k := p.Algorithm.Max(), int64(p.Shards)
	return n*int64(i+1)/k - n*int64(i)/k
}

// see notes what remains of a policy in a share, and corrects the sum. Concurrent
// answers may come in any order; the last one stands until the next.
func (k *hotKey) see(i, j int, n int64) {
	was := k.rooms[i*len(k.left)+j].Swap(n)
	k.left[j].Add(n - was)
}

// refill notes that a share has all its room of a policy.
func (k *hotKey) refill(i, j int) {
	k.fresh[i*len(k.left)+j].Store(0)
	k.see(i, j, share(&k.policies[j], i))
}

// claim takes g's costs from what was seen in a share, before it is asked, so that
// concurrent calls of this process do not race for the same units. The answer
// corrects it.
func (k *hotKey) claim(i int, g *backend.Group) {
	for j := range k.left {
		n := g.CostOf(j)
		k.rooms[i*len(k.left)+j].Add(-n)
		k.left[j].Add(-n)
	}
}

// avoids reports whether the i-th sub-key did not answer a moment ago.
func (k *hotKey) avoids(i int, now time.Duration) bool {
	until := k.subs[i].avoided.Load()
	return until != 0 && now < time.Duration(until)
}

// observe notes what a sub-key answered to g, with one state per policy. Where that
// shows room for what was denied before, nothing that followed from the denial holds.
func (k *hotKey) observe(i int, g *backend.Group, allowed bool, states []backend.State, sent time.Duration) {
	for j := range states {
		k.see(i, j, states[j].Remaining)
		k.fresh[i*len(states)+j].Store(int64(sent + states[j].ResetAfter))
	}
	s := &k.subs[i]
	s.avoided.Store(0)
	old := s.denied.Load()
	if !allowed {
		s.denied.Store(denial.NewDenial(g, states, sent, k.cache.Now())) // the clock is read only here
	}
	if old != nil && refutes(states, g, old) {
		s.denied.CompareAndSwap(old, nil)
		k.denials.Forget() // mutant: room-ends-denial
	}
}

// refutes reports whether an answer to g shows room for what a share denied: the binding
// policy has as much left, or had no objection to a call that costs no less. Another
// process has reset the key, raised its limit or given something back.
func refutes(states []backend.State, g *backend.Group, d *denial.Denial) bool {
	by := backend.Binding(d.States)
	s, cost := &states[by], d.Costs[by]
	return s.Remaining >= cost || s.RetryAfter == 0 && g.CostOf(by) >= cost
}
