package shard

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/chance"
	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/invariant"
	"github.com/headgate-go/headgate/internal/slot"
	"golang.org/x/sync/singleflight"
)

// hotKey is what this process remembers of one key under one list of policies.
//
// Rooms are estimates. An answer sets a share's room to what the store said. That leaves
// out the claims of calls in flight, and other processes take units too. So rooms choose
// which share is asked, and never deny a call: only denials of the store do, for as long
// as they hold. All fields after policies are atomics or pointers to immutable values.
// Their updates need no order among each other.
type hotKey struct {
	key      string
	policies []backend.Policy // never written
	names    *slot.Salts
	home     int // slots; see name
	offset   int
	subs     []atomic.Pointer[subKey] // each is made when it is first looked at
	left     []atomic.Int64           // what remains in all of them, one per policy
	recent   atomic.Bool              // asked for recently; see keyCache
	level    atomic.Bool              // the shares were summed, and none of them is above its part
	calls    atomic.Int32             // in flight
	dealt    atomic.Uint64            // sub-keys up to now
	turn     atomic.Int32             // the sub-key that calls use
	joins    atomic.Int64             // how many more of them
	ends     atomic.Int64             // until when
	sums     singleflight.Group       // of the readings of all sub-keys that may have room, by costs
	denials  *denial.Cache            // of the key's store, with its clock
}

// subKey is the share of one sub-key, and what was last seen of it.
type subKey struct {
	policies []backend.Policy              // one list for all calls, since stores compare lists by address first
	rooms    []room                        // one per policy
	denied   atomic.Pointer[denial.Denial] // its last one, or an unanswered one
}

// room is what remained of a policy when last seen.
type room struct {
	units atomic.Int64
	fresh atomic.Int64 // when what was seen counts no more; 0: nothing was
}

func newHotKey(key string, policies []backend.Policy, denials *denial.Cache) *hotKey {
	k := &hotKey{key: key, policies: policies, names: slot.Names(policies[0].Shards), denials: denials}
	k.home, k.offset = k.names.Home(key), int(xxhash.Sum64String(key)%slot.Count)
	k.subs, k.left = make([]atomic.Pointer[subKey], policies[0].Shards), make([]atomic.Int64, len(policies))
	for j := range policies {
		k.left[j].Store(policies[j].Algorithm.Max())
	}
	if invariant.Checked {
		invariant.Holds(k.sumsUp(), "shares sum to the limit")
	}
	k.dealt.Store(chance.Uint64()) // or all processes would use the same sub-key at once
	return k
}

// sumsUp reports whether the shares of each policy sum to its limit. Policies that Check refuses
// have no shares.
func (k *hotKey) sumsUp() bool {
	for j := range k.left {
		a, shares := &k.policies[j].Algorithm, len(k.subs)
		left, kept := a.Max(), true
		for i := range shares {
			part := a.Part(int64(i), int64(shares))
			left -= part.Max()
			kept = kept && part.Check() == nil
		}
		if kept && left != 0 {
			return false
		}
	}
	return true
}

// name returns the name of the i-th sub-key, which contains the number of shares.
// Its slot is i K-ths of the range from an offset that the key's hash gives, in
// every process. Points at equal distances put as many on a node as its part of the
// range holds, or one more, for every key.
func (k *hotKey) name(i int) string {
	return k.names.Name(k.home, (k.offset+i*slot.Count/len(k.subs))%slot.Count)
}

// named returns the sub-key of a name, -1 if it is none of the key's.
func (k *hotKey) named(sub string) int {
	for i := range k.subs {
		if k.name(i) == sub {
			return i
		}
	}
	return -1
}

// SubKeys returns the names of a key's sub-keys, in the order of their shares. It is for tools
// that read each of them. The i-th is that of Algorithm.Part(i, shards). shards is a Policy.Shards.
// There are none if it is below 2 or above MaxShards.
func SubKeys(key string, shards int) (names []string) {
	if shards < 2 || shards > MaxShards {
		return nil
	}
	k := newHotKey(key, []backend.Policy{{Shards: shards}}, nil)
	for i := range shards {
		names = append(names, k.name(i))
	}
	return names
}

// sub returns the i-th share, and makes it at its first use. Two goroutines may both make
// one, and the first stored one is kept.
func (k *hotKey) sub(i int) *subKey {
	if s := k.subs[i].Load(); s != nil {
		return s
	}
	s := &subKey{policies: slices.Clone(k.policies), rooms: make([]room, len(k.policies))}
	for j := range s.policies {
		p := &s.policies[j]
		p.Algorithm, p.Shards = p.Algorithm.Part(int64(i), int64(len(k.subs))), 0
		s.rooms[j].units.Store(p.Algorithm.Max())
	}
	k.subs[i].CompareAndSwap(nil, s)
	return k.subs[i].Load()
}

// lists reports whether k is of these policies.
//
// The pointers agree as long as one limiter calls, so the lists are seldom compared.
func (k *hotKey) lists(policies []backend.Policy) bool {
	return len(k.policies) == len(policies) && (&k.policies[0] == &policies[0] || slices.Equal(k.policies, policies))
}

// cells returns how much memory the key takes, in policies of shares. keyCache bounds their
// sum.
func (k *hotKey) cells() int64 {
	if k == nil {
		return 0
	}
	return int64(len(k.subs) * len(k.left))
}

// see notes what remains of a policy in a share, and corrects the sum. Concurrent
// answers may come in any order; the last one stands until the next.
//
// It takes no lock. Each of several concurrent answers adds its own difference, so the sum
// is that of the values that stand, however they interleave.
func (k *hotKey) see(i, j int, n int64) {
	k.left[j].Add(n - k.sub(i).rooms[j].units.Swap(n))
}

// refill notes that a share has all its room of a policy.
func (k *hotKey) refill(i, j int) {
	s := k.sub(i)
	s.rooms[j].fresh.Store(0)
	k.see(i, j, s.policies[j].Algorithm.Max())
}

// observe notes what a sub-key answered to g, with one state per policy. Where that
// shows room for what was denied before, nothing that followed from the denial holds.
//
// sent is the instant before the request: what is remembered must not be newer than the
// state that it is of.
func (k *hotKey) observe(i int, g *backend.Group, allowed bool, states []backend.State, sent time.Duration) {
	s := k.sub(i)
	//mutant:lowered-limit-summed
	if k.above(states) {
		k.level.Store(false)
	}
	for j := range states {
		k.see(i, j, states[j].Remaining)
		s.rooms[j].fresh.Store(int64(sent + states[j].ResetAfter))
	}
	old := s.denied.Load()
	if !allowed {
		s.denied.Store(denial.NewDenial(g, states, sent, k.denials.Now())) // the clock is read only here
	}
	if old != nil && (old.States == nil || k.refutes(states, g, old)) {
		s.denied.CompareAndSwap(old, nil)
		//mutant:room-ends-denial
		k.denials.Forget(k.key)
	}
}

// above reports whether a share counts more than its part of the limit. So it is after the
// limit was lowered, until what the old one has passed has aged.
func (k *hotKey) above(states []backend.State) bool {
	for j := range states {
		if !k.policies[j].Shadow && states[j].Used > states[j].Limit {
			return true
		}
	}
	return false
}

// refutes reports whether an answer to g shows room for what a share denied. The binding
// policy has as much left, or had no objection to a call that costs no less. Another
// process has reset the key, raised its limit or given something back.
func (k *hotKey) refutes(states []backend.State, g *backend.Group, d *denial.Denial) bool {
	by := backend.Binding(k.policies, d.States)
	s, cost := &states[by], d.Costs[by]
	return s.Remaining >= cost || s.RetryAfter == 0 && g.CostOf(by) >= cost
}
