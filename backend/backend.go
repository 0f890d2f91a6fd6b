// Package backend is the contract between a limiter and its store: what a limiter
// asks, and what a store answers.
//
// Users hold a headgate.Limiter and seldom import this package. Authors of a
// store do, together with backend/storetest, which holds the sentences below
// as tests.
package backend

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
)

// Store keeps counts and decides on them atomically. Its methods are safe for
// concurrent use. backend/storetest has a case for each sentence here.
//
//   - A take that fits every policy's limit passes and is charged to every policy.
//   - A cost of 0 beside another is charged nothing and stores nothing; the policy denies only while more is used than its limit.
//   - A take that one policy has no room for is denied and charges none of them.
//   - A denied take stores nothing.
//   - A peek answers what a take would and stores nothing.
//   - A reset makes the key unused for the policies it lists, and for no others.
//   - A count belongs to a policy's name and its algorithm's Identity: requests that agree on both share it, whatever else they list. Others have separate counts.
//   - A limit that changes counts from the next request on what is already used.
//   - A shadow policy denies nothing: a request passes if every other policy has room, and of only shadows always.
//   - A request that passes charges each shadow that has room, and the others not; a denied one charges none. A Record charges all.
//   - A shadow's State is its own: its RetryAfter is zero only if it has room. It binds only where no other policy is listed, without its RetryAfter.
//   - A shadow's count is its own, also beside a policy of its name and algorithm.
//   - A Take of a run that is UpTo passes the first of its calls that every policy has room for, and charges them at once; Passed is how many. It is denied if the first one has no room.
//   - A Take of a run charges each shadow the first of the calls that pass that it has room for. Passed is how many, and RetryAfter is zero only if it has room for all of the run.
//   - NextAfter of a run that passed in part is the RetryAfter of the next call.
//   - Two keys never share a count, whatever bytes they hold.
//   - A decision's State is the binding policy's: of a denial the longest RetryAfter, of a pass the least Remaining, of equals the first listed.
//   - Each is filled with the state of every policy, in the order listed.
//   - No State of a decision is NotCounted.
//   - Remaining is the limit less what is used, on a denial too, and never below zero.
//   - RetryAfter is exact: after it the same take passes if no other call took, a microsecond earlier it does not, and on a denial it is never zero.
//   - ResetAfter is exact: after it the key is unused, a microsecond earlier it is not.
//   - A LeakyQueue passes what waits for at most its longest delay. Delay is how long, of a run how long its last call; the decision has the longest of the policies that are no shadows.
//   - A cost no policy could ever grant is ErrNeverAdmissible, and a request out of range an *InvalidError; no count changes.
//   - An operation or a number of keys beyond the store's Capabilities is ErrUnsupported, and no count changes.
//   - A Reserve decides and charges as a take does, and keeps its lease where it passes. If its lease is Free it may cost nothing. Under an ID that is in use it is ErrNotHeld and changes nothing.
//   - A Settle leaves what would stand had the lesser of estimate and actual been charged at the instant of the Reserve, and records the excess now.
//   - What has left its window gives nothing back, no other charge is touched, and no count falls below zero.
//   - A TokenBucket gives back at most its level just after the Reserve, less what has leaked and what others have given back since.
//   - A TokenBucket regains at least 99.9 % of its rate, whatever is reserved and given back in between.
//   - A LeakyQueue gives back what nothing was charged behind, and else nothing.
//   - A Settle with an Each is Allowed, and answered by the states of a Peek of one unit right after it; one that is not known is zero.
//   - The first Settle of a lease wins: for one Length after it, one that repeats its Attempt is nil; any other is ErrNotHeld, and neither changes a count.
//   - A lease that has ended can be settled for one Length more. Then, and under an ID or a key that has none, it is ErrNotHeld.
//   - A lease that was reserved Late can be settled until twice its Length, at least ten minutes, have passed since its end was set. What its Settle leaves stays as long.
//   - An Extend moves the end to one Length from now; of a lease that has ended it is ErrLeaseEnded, of one that is not held ErrNotHeld.
//   - A Reset of a key ends its leases: a Settle or an Extend is ErrNotHeld, and changes no count.
//   - A Settle with Unresolved leaves a tombstone, and records Actual if it finds no lease; a Reserve or another Settle that finds the tombstone is ErrNotHeld and changes nothing.
//   - A Record passes, whatever is used, and charges up to twice the greatest limit of the algorithm's kind.
//   - A Return passes, and takes its costs out of what each policy counts, the newest units first and never below zero: Used is less by as much. Lent units are not among them.
//   - A Reserve under a Named ID is ErrHeld while its lease is open, moves its end and charges nothing; by another list or other costs it is an *InvalidError. After a Settle the ID is reserved anew, but not by a Reserve whose Attempt is not later.
//   - A lease does not touch a shadow that had no room, whatever settles it.
//   - A slot of an InFlight is held from a Reserve until its lease is settled or ends; only a Reserve takes one, and RetryAfter is when it is free at the latest.
//   - A request of several keys passes if the policies of every key have room, and is charged to all. Else it is charged to none and stores nothing.
//   - Of several keys the State is that of the policy that binds among all, and Key and At name its key and group; Each is its own group's.
//   - A Reserve of several keys keeps the lease of each group, and each is settled by itself.
//   - A key may be in two groups of a request, a count may not: it is an *InvalidError, and no count changes.
//   - Of several alternatives the first is charged whose policies all have room, and no other. A count may be in several alternatives.
//   - If none has room, the decision is that of the alternative that passes soonest, of equals the first.
//   - Each of an alternative that was not looked at, behind the one that passed, stays as it is.
//   - A Settle of several alternatives with Unresolved leases settles the lease that is held, and leaves a tombstone of each other. If none is held, it records what the first alternative names.
//   - A Borrow decides and charges its cost as a Take does, and settles and lends in the same step; it may cost 0.
//   - A Borrow settles that loan of Held which its ID holds: what was used is charged now. Keep stays lent, and the rest is free.
//   - What it keeps stays lent also where the count is at or above its limit: the process may have used it.
//   - It lends up to Want units: beside those of Keep at most half of a fair share of the room of every policy, until at most one Term from now.
//   - Lent units count as used by every request, which answers how many they are, and do not age.
//   - A loan stands for two Terms after Lent.Ends, and a settle until then is as any other. What is not settled by its end is charged whole, and a settle after that changes nothing.
//   - A loan ends with the window that its units are charged to.
//   - Where the part of an enforced policy has ended or is not held, Keep is charged to the others as used, and nothing stays lent.
//   - While units are lent, RetryAfter is at most until the first Lent.Ends that is to come, or until a loan ends.
//   - After a Take, Reserve or Borrow that is denied only because units are lent, for ten seconds units are lent only while there is room for its cost. Until there is, no loan ends later, and Lent.Recalled says so.
//   - A Borrow whose Seq is not above that of the last one of its ID is ErrNotHeld and changes nothing.
//   - After a Reset no lent unit counts, and a settle of it finds that it is not held.
//   - Of a shadow as many units are lent as it has room for, which Loan.Each tells. The loan is as long as without it.
//   - A context that has ended before anything was sent is its error, and nothing was counted.
//   - A value that is not the store's own is a *CorruptError that names the key, and no count changes.
//   - A store that cannot answer says ErrUnavailable if nothing was counted, and ErrPerhapsCounted if that is not known.
//   - A take is charged at most once, whatever is lost on the way.
//   - Everything stored expires by itself.
//   - After Close every request is ErrClosed.
//   - An error leaves the decision zero.
//   - Nothing is written to a request, but to what its Each, Loan and StoreTime name.
//   - Neither the request nor the decision is kept when Do has returned, also where ctx ended first.
type Store interface {
	// Check reports whether the store can keep these policies. It does no I/O and
	// is called once, when a limiter is made. The error is typed and names the
	// value.
	Check(policies []Policy) error

	// Do decides one request and writes the answer to d, which is zero before. A
	// denial is a Decision, never an error. An error means that the store decided
	// nothing, and d is still zero. Both r and d are the caller's, to be used for
	// something else as soon as Do has returned.
	Do(ctx context.Context, r *Request, d *Decision) error

	// Capabilities returns what the store can do. It never changes.
	Capabilities() Capabilities

	// Close releases what the store itself made; a client that it was given
	// stays open. Closing twice is closing once.
	Close() error
}

// Answer is what Do writes and returns, for one of several requests.
type Answer struct {
	Decision Decision
	Err      error
}

// Pinger is implemented by stores that can check, with I/O, whether they are fit
// to serve: reachable, new enough, configured so that counts last.
type Pinger interface {
	// Ping returns as an error what makes the store unfit, and as warnings what only
	// weakens its promise.
	Ping(ctx context.Context) (warnings []string, err error)
}

// Request is one call to a store. Layers pass it on by pointer, with the Decision
// to write. Together they are some 300 bytes, and a copy per layer costs more than
// a decision in memory. A caller with many requests keeps both in a pool, since
// they escape through the interface.
type Request struct {
	Op Op
	Group
	And       []Group       // of a Take, Peek or Reserve: more keys, decided all or nothing with Group, but for Group.Else; nearly always nil
	Again     bool          // the caller sends it again if it is denied: what it was charged is given back before Do returns
	Loan      *Loan         // Borrow: what it settles and lends, and its answer; else nil
	StoreTime *atomic.Int64 // the nanoseconds spent in the store are added to it; nil: not wanted
}

// Group is one key with the policies that count it and what it asks of each.
type Group struct {
	Key      string
	Sub      string        // one of a hot key's sub-keys; "" is the key itself; set only by package shard
	Policies []Policy      // shared between requests, never written
	Shards   int           // the number of sub-keys, in as many slots, that the key is spread over; 0 and 1: it is not. A store ignores it
	Borrow   time.Duration // the term for which a process may hold units of the key in advance; 0: it may not. A store ignores it
	Cost     int64         // units of every policy, where Costs is nil
	Costs    []int64       // units, one per policy
	Run      int64         // of a Take of one key: the number of equal calls that it is, all or none, whose costs these are together. 0: it is no run
	UpTo     bool          // of a run: as many of its calls pass as there is room for, and the costs are those of one
	Lease    *Lease        // of a Reserve, a Settle and an Extend; else nil
	Else     bool          // of one of And: it begins an alternative, which is decided only if those before it have no room; see Request.First
	Stops    bool          // of an alternative's first group: if the alternative can't be decided, and is certainly not counted, no later one is
	Via      Store         // of one of several groups: the outermost layer of its own limiter; nil: that of the request. A store ignores it
	Each     []State       // where a state per policy is written before Do returns, on its caller's goroutine; nil: not wanted. An Extend and a Reset write none
}

// CostOf returns the cost of the group for its i-th policy, in units.
func (g *Group) CostOf(i int) int64 {
	if g.Costs == nil {
		return g.Cost
	}
	return g.Costs[i]
}

// Charged returns the units that the i-th policy is charged if the request passes, and so many
// calls of a run that is UpTo.
func (g *Group) Charged(i int, passed int64) int64 {
	if g.UpTo {
		return g.CostOf(i) * passed
	}
	return g.CostOf(i)
}

// Look returns the group of the Peek by which a store answers a Settle whose Each is not
// nil: of one unit of each policy.
func (g *Group) Look() *Group {
	return &Group{Key: g.Key, Sub: g.Sub, Policies: g.Policies, Cost: 1, Each: g.Each}
}

// Policy is a rule under a name, with what a call gets when no store can decide.
type Policy struct {
	// Name is 1 to 64 of A-Z a-z 0-9 _ -. Policies of one name share a count
	// where their algorithms' Identity is equal, and the Shards of their lists.
	Name string
	// Algorithm is the rule with its numbers.
	Algorithm rule.Algorithm
	// OnFailure applies when the store can't decide. There is no default.
	OnFailure FailureMode
	// Shadow makes the policy decide and count without an effect: it denies no call.
	// It is decided after the others, in the same request. Its count is its own: an
	// enforced policy of the same name and algorithm has another one.
	Shadow bool
	// Class names what the policy's keys are, such as "per address"; "" is no name. It has no
	// part in whose count it is. A store in memory keeps a bounded number of counts. There a
	// class may keep at most as many as are free, and its further keys share a count. So a
	// flood of keys of one class leaves free counts to the others. Other stores ignore Class.
	Class string
}

// Enforced yields the policies of a list that can deny a call, which are all but the shadows.
func Enforced(list []Policy) iter.Seq2[int, *Policy] {
	return func(yield func(int, *Policy) bool) {
		for i := range list {
			//mutant:enforced-policies
			if p := &list[i]; !p.Shadow && !yield(i, p) {
				return
			}
		}
	}
}

// FailureMode is what a call gets when no store decided it.
type FailureMode uint8

// The failure modes. The zero mode is none of them, and New refuses it: the user must
// choose whether uncounted calls pass.
const (
	FailOpen   FailureMode = iota + 1 // let the call pass
	FailClosed                        // deny the call
	FailLocal                         // decide in this process, by its share: limit / instances
)

var failureModeNames = [...]string{"none", "fail_open", "fail_closed", "fail_local"}

// String returns the mode's name, which is that of the source of its decisions.
func (m FailureMode) String() string {
	if int(m) >= len(failureModeNames) {
		return "unknown"
	}
	return failureModeNames[m]
}

// Source is what made a decision.
type Source uint8

// The sources of a decision. If no store could decide, Decision.Err is the cause. It
// is nil for the deny cache, which repeats the store's denial.
const (
	FromStore      Source = iota // the store that holds the counts
	FromFailOpen                 // no store: the policies fail open
	FromFailClosed               // no store: a policy fails closed
	FromFailLocal                // this process, with its share of the limit
	FromDenyCache                // the store, at most a second ago, or a minute where none decides: it denied the key until an instant after now
	FromLoan                     // this process, from units that the store has lent to it
	FromNone                     // nothing: the call costs nothing, so no store was asked and no number is counted
)

var sourceNames = [...]string{"store", "fail_open", "fail_closed", "fail_local", "deny_cache", "loan", "none"}

// String returns the source's name, as metrics and logs use it.
func (s Source) String() string {
	if int(s) >= len(sourceNames) {
		return "unknown"
	}
	return sourceNames[s]
}
