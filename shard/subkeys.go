package shard

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/chance"
	"github.com/headgate-go/headgate/internal/denial"
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
	names    slot.Subs
	subs     []subKey
	left     []atomic.Int64     // what remains in all of them, one per policy
	level    atomic.Bool        // the shares were summed, and none of them is above its part
	calls    atomic.Int32       // in flight
	dealt    atomic.Uint64      // sub-keys up to now
	turn     atomic.Int32       // the sub-key that calls use
	joins    atomic.Int64       // how many more of them
	ends     atomic.Int64       // until when
	sums     singleflight.Group // of the readings of all sub-keys that may have room, by costs
	denials  *denial.Cache      // of the key's store, with its clock
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

func newHotKey(key string, policies []backend.Policy, shares int, denials *denial.Cache) *hotKey {
	n := len(policies)
	k := &hotKey{key: key, policies: policies, names: slot.SubsOf(key, shares), denials: denials}
	k.subs, k.left = make([]subKey, shares), make([]atomic.Int64, n)
	parts, rooms := slices.Repeat(policies, shares), make([]room, shares*n)
	for i := range k.subs {
		s := &k.subs[i]
		s.policies, s.rooms = parts[i*n:(i+1)*n:(i+1)*n], rooms[i*n:(i+1)*n]
		for j := range s.policies {
			p := &s.policies[j]
			p.Algorithm = p.Algorithm.Part(int64(i), int64(shares))
			k.see(i, j, p.Algorithm.Max())
		}
	}
	k.dealt.Store(chance.Uint64()) // or all processes would use the same sub-key at once
	return k
}

// SubKeys returns the names of a key's sub-keys, in the order of their shares. It is for tools
// that read each of them. The i-th is that of Algorithm.Part(i, shards). There are
// none if it is below 2 or above MaxShards.
func SubKeys(key string, shards int) (names []string) {
	if shards < 2 || shards > MaxShards {
		return nil
	}
	subs := slot.SubsOf(key, shards)
	for i := range shards {
		names = append(names, subs.Name(i))
	}
	return names
}

// listed returns the one of a key's entries that is of the group's list, nil if there is none.
//
// The pointers agree as long as one limiter calls, so the lists are seldom compared.
func listed(all []*hotKey, g *backend.Group) *hotKey {
	policies := g.Policies
	for _, k := range all {
		if len(k.subs) == g.Shards && len(k.policies) == len(policies) && (&k.policies[0] == &policies[0] || slices.Equal(k.policies, policies)) {
			return k
		}
	}
	return nil
}

// cells returns how much memory the key takes, in policies of shares. keyCache bounds their
// sum.
func (k *hotKey) cells() int { return len(k.subs) * len(k.left) }

// see notes what remains of a policy in a share, and corrects the sum. Concurrent
// answers may come in any order; the last one stands until the next.
//
// It takes no lock. Each of several concurrent answers adds its own difference, so the sum
// is that of the values that stand, however they interleave.
func (k *hotKey) see(i, j int, n int64) {
	k.left[j].Add(n - k.subs[i].rooms[j].units.Swap(n))
}

// observe notes what a sub-key answered to g, with one state per policy. Where that
// shows room for what was denied before, nothing that followed from the denial holds.
//
// sent is the instant before the request: what is remembered must not be newer than the
// state that it is of.
func (k *hotKey) observe(i int, g *backend.Group, allowed bool, states []backend.State, sent time.Duration) {
	s := &k.subs[i]
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
	//mutant:denial-again-refutes-nothing
	if old != nil && (old.States == nil && allowed || old.States != nil && k.refutes(states, g, old)) {
		s.denied.CompareAndSwap(old, nil)
		//mutant:room-ends-denial
		k.denials.Forget(k.key)
	}
}

// above reports whether a share counts more than its part of the limit. So it is after the
// limit was lowered, until what the old one has passed has aged.
func (k *hotKey) above(states []backend.State) bool {
	for j := range backend.Enforced(k.policies) {
		if states[j].Used > states[j].Limit {
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
