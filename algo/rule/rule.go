package rule

import "fmt"

// rule is all that distinguishes one kind from the others. Each stands in its
// kind's own file. A nil function is one that the kind does not need.
//
// The functions take and return numbers where they can. A pointer that is passed to a
// function value escapes to the heap, and a decision must not allocate.
type rule struct {
	kind    Kind
	name    string
	storage Storage
	mark    string // begins the names of what it stores; see Kind.Mark
	words   int    // how many it keeps of a key; 0: see newWords
	beside  int    // 1: and a word with the sum of all charges, which only giving back needs
	most    int64  // the greatest limit
	leased  bool   // only a Reserve charges it: it has slots that leases hold, and no period
	carries bool   // a window's count goes on into the next one
	rate    bool   // the limit is a rate, and what can count at once another number
	queues  bool   // its callers wait in line: its count is not divided, neither lent nor spread
	wall    bool   // see Algorithm.FollowsWallClock

	// derive completes the numbers that follow from limit, max and own.
	derive func(a *Algorithm)
	// check refuses max and own; the limit was checked before.
	check func(a *Algorithm) error
	// own words what the algorithm has beside its limit.
	own func(a *Algorithm) string
	// random returns an algorithm of a limit. pick picks the other numbers, each
	// from a range.
	random func(r *rule, l Limit, pick func(least, most int64) int64) Algorithm

	// widest is Widest of a kind where the greatest limit is not all that it takes.
	widest func(r *rule, id Identity) Algorithm
	// numbers are Numbers but for the limit, of a kind where they depend on now.
	numbers func(a *Algorithm, now int64) (period, x, y, fill int64)
	worst   func(a *Algorithm, t int64) int64

	// roll rolls a few words forward to now, and returns what they amount to.
	roll func(a *Algorithm, w words, now int64) (used, at int64, rolled words)
	// charge returns rolled words after n more units, counted at the instant at.
	charge func(a *Algorithm, w words, at, n int64) words
	// reserve is charge for what may be given back; nil: charge.
	reserve func(a *Algorithm, w words, at, n int64) words
	// giveBack returns rolled words after n units less of a charge, or false where
	// nothing of it still counts. at is the instant at which a take would be counted.
	giveBack func(a *Algorithm, w words, at int64, c Charge, n int64) (words, bool)
	// closes returns when the window ends to which a charge belongs; nil: none does.
	closes func(a *Algorithm, w words) int64
	// resetAt is when rolled words of a key that is in use no longer count.
	resetAt func(a *Algorithm, w words) int64
	// retryAt is when n units fit that don't now.
	retryAt func(a *Algorithm, w []int64, v View, n int64) int64
	// shown is what a State shows as used of rolled words, where a decision counts less.
	// delay is for how long the last charge waits, from an instant on.
	shown func(w words) int64
	delay func(a *Algorithm, w words, at int64) int64

	// Of kinds with many words, instead of words and roll.
	newWords func(a *Algorithm) int
	view     func(a *Algorithm, w []int64, now int64) View
	take     func(a *Algorithm, w []int64, v View, n int64) []int64
	// refund is giveBack of a kind that needs all its words for it.
	refund func(a *Algorithm, w []int64, v View, c Charge, n int64) []int64
	// returns takes n units out of the newest units that count, at most Used. If it is nil,
	// giveBack or refund does so, as if they were all of the last charge.
	returns func(a *Algorithm, w []int64, v View, n int64) []int64
}

// words are a kind's few words in their order, and behind them what its View
// needs. The kind's file names them.
type words struct{ x, y, z int64 }

// Storage says where Redis keeps what an algorithm counts, and what the script
// answers of it.
type Storage uint8

// The classes of storage. The zero Storage is that of no algorithm.
const (
	StoredWords  Storage = iota + 1 // at most three words in the key's hash; the script answers with them
	StoredPacked                    // packed in the key's hash; the script answers with what it amounts to
	StoredApart                     // under a Redis key of its own; the script answers with what it amounts to
)

// Storage returns how the kind is stored, 0 for no kind of this package.
func (k Kind) Storage() Storage { return k.rule().storage }

// Mark begins the names of the hash fields that hold the kind's counts. It is also what
// follows the hash's name in that of a key of its own. A kind whose stored format
// changes gets another.
func (k Kind) Mark() string { return k.rule().mark }

// Words returns how many words the kind counts with, 0 where that differs from one
// Algorithm to the next.
func (k Kind) Words() int { return k.rule().words }

// Sums reports whether the third word of the kind is the sum of all charges of a key. It
// may begin anywhere above those of Charges that are no longer to be given back.
func (k Kind) Sums() bool { return k.rule().beside > 0 }

// MaxLimit is the greatest limit of the kind, or the greatest rate.
func (k Kind) MaxLimit() int64 { return k.rule().most }

// Wire is the kind as package lua reads it: its class of storage above its
// number.
func (k Kind) Wire() byte { return byte(k.Storage())<<4 | byte(k) }

// Leased reports whether only a Reserve charges the kind, as it does InFlight.
func (k Kind) Leased() bool { return k.rule().leased }

// Queues reports whether callers of the kind wait in line, as those of a LeakyQueue do. Its
// units are not lent, and its keys not spread.
func (k Kind) Queues() bool { return k.rule().queues }

// Returns reports whether counted units of the kind can be returned. A slot belongs to its lease,
// and a place in a queue to those behind it.
func (k Kind) Returns() bool { return k.Lends() }

// Rates reports whether the limit is a rate, and Max another number, as of a TokenBucket.
func (k Kind) Rates() bool { return k.rule().rate }

// Carries reports whether a window's count goes on into the next one, as SlidingWindow's does.
func (k Kind) Carries() bool { return k.rule().carries }

// String returns the algorithm's name.
func (k Kind) String() string { return k.rule().name }

// Random returns an algorithm of the kind and a limit, for tests that are to
// meet all algorithms. pick picks each further number from a range.
func (k Kind) Random(l Limit, pick func(least, most int64) int64) Algorithm {
	r := k.rule()
	if r.random == nil {
		return r.make(l, l.Events, 0)
	}
	return r.random(r, l, pick)
}

func (k Kind) rule() *rule {
	switch {
	case k == 0:
		return &none
	case int(k) >= len(rules) || rules[k] == nil:
		return &unknown
	}
	return rules[k]
}

// none is the rule of the zero Algorithm, and unknown that of a Kind that was
// made of a number. They grant nothing.
var (
	none    = rule{name: "none", view: nothing, charge: unchanged, resetAt: never, retryAt: neverFits}
	unknown = rule{name: "unknown", view: nothing, charge: unchanged, resetAt: never, retryAt: neverFits}
)

func nothing(_ *Algorithm, _ []int64, now int64) View   { return View{At: now} }
func unchanged(_ *Algorithm, w words, _, _ int64) words { return w }
func never(*Algorithm, words) int64                     { return 0 }
func neverFits(*Algorithm, []int64, View, int64) int64  { return longest }

// make makes an algorithm of the kind. One that is out of range keeps its
// numbers for the error but grants nothing, so that no arithmetic uses them.
func (r *rule) make(l Limit, max, own int64) Algorithm {
	a := Algorithm{of: r, own: own}
	return a.with(l, max)
}

// with returns the algorithm with another limit and max.
func (a Algorithm) with(l Limit, max int64) Algorithm {
	r, period := a.rule(), l.Period.Microseconds()
	a.of, a.limit, a.max, a.period, a.fill = r, l, max, period, period
	a.identity = Identity{Kind: r.kind, Period: period}
	if r.derive != nil {
		r.derive(&a)
	}
	a.sound = a.Check() == nil
	a.hash = a.identity.hash()
	return a
}

// Check says whether the numbers are in range. The error is an *InvalidError.
func (a *Algorithm) Check() error {
	r := a.rule()
	if r.kind == 0 {
		return &InvalidError{What: "algorithm", Value: r.name, Want: "one made by a function of package algo, as rule.FixedWindow"}
	}
	if err := within("limit", a.limit.Events, 1, r.most); err != nil {
		return err
	}
	p := a.limit.Period
	if r.leased {
		return nil
	}
	if p < MinPeriod || p > MaxPeriod || p%1000 != 0 {
		return &InvalidError{What: "period", Value: p, Want: fmt.Sprintf("%v to %v in whole microseconds", MinPeriod, MaxPeriod)}
	}
	if r.check != nil {
		return r.check(a)
	}
	return nil
}
