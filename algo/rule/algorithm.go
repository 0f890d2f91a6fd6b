// Package rule holds the rules of package algo, as stores need them. Users of a limiter
// only need package algo.
//
// A store in Go decides by the methods of [Algorithm] and by [View], [Charge], [Kind],
// [Identity] and [Storage]. Package lua holds the same rules, step for step, for Redis.
//
// What a rule keeps of a key is a few words. These are int64s whose meaning does not
// depend on the limit, so that a limit can change while counts live. Time is an argument:
// microseconds of the Unix epoch, 0 to 2^52.
//
// A clock may step. What is stored at most one period ahead of now stands until its time
// comes; what is further ahead counts as absent. So a step back adds at most one period of
// waiting, or frees one limit.
package rule

import (
	"fmt"
	"math/bits"
	"time"
)

// Kind is an algorithm's number. It is stored and sent, and never another's.
// The zero Kind is none.
type Kind uint8

// rules are the kinds under their numbers. An algorithm is a file of its own, a
// line here, its twin in package lua and a line in lua/kinds.lua.
var rules = [...]*rule{
	KindFixedWindow:    &fixedWindow,
	KindSlidingWindow:  &slidingWindow,
	KindTokenBucket:    &tokenBucket,
	KindBucketedWindow: &bucketedWindow,
	KindSlidingLog:     &slidingLog,
	KindInFlight:       &inFlight,
	KindCalendar:       &calendar,
	KindCompactLog:     &compactLog,
	KindLeakyQueue:     &leakyQueue,
}

// Kinds returns all kinds that a take charges, in the order of their numbers: all
// but InFlight.
func Kinds() (all []Kind) {
	for _, r := range rules {
		if r != nil && !r.leased {
			all = append(all, r.kind)
		}
	}
	return all
}

// Algorithm is a rule with its numbers. It is a comparable value, safe to
// copy and share. The zero Algorithm is none and refused.
type Algorithm struct {
	of       *rule // nil: none
	limit    Limit
	max      int64 // the most units that can count at once: the limit, or the burst
	own      int64 // the number beside limit and max, where the kind has one
	period   int64 // µs
	a, b     int64 // what the kind derives, named in its file
	fill     int64 // µs that the newest stored instant may lie ahead of now
	identity Identity
	hash     uint64         // of the identity
	every    CivilPeriod    // of a Calendar
	zone     *time.Location // of a Calendar
	sound    bool           // Check found nothing
}

func (a *Algorithm) rule() *rule {
	if a.of == nil {
		return &none
	}
	return a.of
}

// Kind returns which algorithm it is.
func (a *Algorithm) Kind() Kind { return a.identity.Kind }

// Equal reports whether two algorithms decide alike: by one count and the same numbers. Two
// time.Locations of one name are equal, as a Calendar's count belongs to the name.
func (a *Algorithm) Equal(b *Algorithm) bool {
	own := *a
	//mutant:zones-by-name
	own.zone = b.zone // the Identity has the name
	return own == *b
}

// Identity says which count an algorithm decides on. Under one policy name,
// algorithms of equal identity share a count, whatever their limits, and others
// have separate counts. It is comparable.
type Identity struct {
	Kind    Kind
	Period  int64  // µs; 0 where counts of all periods are one, as a TokenBucket's level, or have a Label
	Buckets int64  // 0 for any but a BucketedWindow
	Label   string // what numbers can't express, such as "m15/Europe/Berlin" of a Calendar; "" for most
}

// Identity returns whose count the algorithm decides on.
func (a *Algorithm) Identity() Identity { return a.identity }

// Hash returns a hash of the Identity, without a seed, for a store in this process. It is
// computed once, where the algorithm is made.
func (a *Algorithm) Hash() uint64 { return a.hash }

// hash is FNV-1a over the label, and then over the numbers by a wider multiplication.
func (id *Identity) hash() uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(id.Label) {
		h = (h ^ uint64(id.Label[i])) * 0x100000001b3
	}
	for _, n := range []uint64{uint64(id.Kind), uint64(id.Period), uint64(id.Buckets)} {
		hi, lo := bits.Mul64(h^n, 0x9E3779B97F4A7C15)
		h = hi ^ lo
	}
	return h
}

// Limit returns the units per period that it was made with. A Calendar's period is
// the length of its unit, of months the longest.
func (a *Algorithm) Limit() Limit { return a.limit }

// Max returns the most units that can count at once. This is also the
// largest cost that can ever pass: the limit, or the burst of a TokenBucket.
// It is 0 for an Algorithm that Check refuses.
func (a *Algorithm) Max() int64 {
	if !a.sound {
		return 0
	}
	return a.max
}

// Numbers returns what package lua needs of the algorithm, in its order. now is
// the caller's clock: a Calendar sends the boundaries around it.
func (a *Algorithm) Numbers(now int64) (max, period, x, y, fill int64) {
	if r := a.rule(); r.numbers != nil && a.sound {
		period, x, y, fill = r.numbers(a, now)
		return a.max, period, x, y, fill
	}
	return a.max, a.period, a.a, a.b, a.fill
}

// FollowsWallClock reports whether now has to be the wall clock: boundaries of the
// calendar move with it, where other counts only need time that passes.
func (a *Algorithm) FollowsWallClock() bool { return a.rule().wall }

// String returns the algorithm as "SlidingWindow(100 per 1m0s)".
func (a *Algorithm) String() string {
	r, own := a.rule(), ""
	if r.wall {
		return fmt.Sprintf("%s(%d per %v, %v)", r.name, a.limit.Events, a.every, a.zone)
	}
	if r.own != nil {
		own = ", " + r.own(a)
	}
	return fmt.Sprintf("%s(%v%s)", r.name, a.limit, own)
}

// WithMax returns the algorithm with another limit, of a TokenBucket with
// another burst. It decides on the same count.
func (a Algorithm) WithMax(n int64) Algorithm {
	l := a.limit
	if !a.rule().rate {
		l.Events = n
	}
	return a.with(l, n)
}

// WithLimit returns the algorithm with another limit. A TokenBucket gets that burst, and one of
// 0 is the limit's Events; of another kind a burst is refused. It decides on the same count if
// the period is the same, or if it is a TokenBucket.
func (a Algorithm) WithLimit(l Limit, burst int64) (Algorithm, error) {
	max := l.Events
	if burst != 0 {
		if !a.rule().rate {
			return a, &InvalidError{What: "burst", Value: burst, Want: "0, as only a TokenBucket has one"}
		}
		max = burst
	}
	return a.with(l, max), nil
}

// Widest returns the algorithm of an identity with the greatest limit, for what
// only looks at a count: it sees all of it. A TokenBucket gets the slowest rate and
// a burst of 1, so that the level is taken as it was stored.
func Widest(id Identity) Algorithm {
	r := id.Kind.rule()
	if r.widest != nil {
		return r.widest(r, id)
	}
	return r.make(Limit{r.most, time.Duration(id.Period) * time.Microsecond}, r.most, id.Buckets)
}

// Worst returns the most units that any trailing window of that length can
// hold, where the numbers don't change and the clock doesn't step. It is 0 for
// an Algorithm that Check refuses.
func (a *Algorithm) Worst(window time.Duration) int64 {
	t := window.Microseconds()
	if !a.sound || t <= 0 {
		return 0
	}
	return a.of.worst(a, t)
}

// trailingWorst is that of a kind that holds its limit in any trailing window.
func trailingWorst(a *Algorithm, t int64) int64 { return saturate(ceilDiv(t, a.period), a.max) }

// View is what a key's words amount to at an instant. It is a value, so that
// looking changes nothing: only Take writes.
type View struct {
	Used int64 // units that count, rounded up; a cost n up to Max fits where Used + n <= Max. Of a LeakyQueue it may be below 0; see Shown
	At   int64 // the instant a take is recorded at: now, or the newest stored one where that is ahead

	// Beside is what is lent of the count, which Used does not include; nil where no
	// unit is. Whoever looks sets it, after the loans that have ended were charged.
	Beside *Lent

	words // rolled forward to now
}

// Fits reports whether n units pass.
//
//mutant:only-what-fits
func (a *Algorithm) Fits(v *View, n int64) bool { return v.Counts()+n <= a.max && n <= a.max }

// Counts returns the units that a decision counts: those used, and those lent.
func (v *View) Counts() int64 {
	if v.Beside == nil {
		return v.Used
	}
	//mutant:lent-counts-as-used
	return v.Used + v.Beside.Sum()
}

// Shown returns the units that a State shows as used. Those are what Counts returns, and of a
// LeakyQueue also those that will have leaked after its longest delay.
func (a *Algorithm) Shown(v *View) int64 {
	if r := a.rule(); r.shown != nil {
		return r.shown(v.words)
	}
	return v.Counts()
}

// Delay returns for how many microseconds the caller waits that the view was charged for last,
// or one that takes n more units. It is 0 but for a LeakyQueue.
func (a *Algorithm) Delay(v *View, n int64) int64 {
	r := a.rule()
	if r.delay == nil {
		return 0
	}
	w := v.words
	if n > 0 {
		w = r.charge(a, w, v.At, n)
	}
	return r.delay(a, w, v.At)
}

// Lent returns the units that are lent, which Counts includes.
func (v *View) Lent() int64 { return v.Beside.Sum() }

// Words returns how many int64s a new key takes.
func (a *Algorithm) Words() int {
	r := a.rule()
	if r.newWords != nil {
		return r.newWords(a)
	}
	return r.words + r.beside
}

// View reads a key's words at now. Words all zero are a new key.
func (a *Algorithm) View(w []int64, now int64) (v View) {
	a.Look(&v, w, now)
	return v
}

// Look is View where the result has a place already. It has more fields than
// the compiler keeps in registers, and copying it took longer than making it.
func (a *Algorithm) Look(v *View, w []int64, now int64) {
	r := a.rule()
	if r.words == 0 {
		*v = r.view(a, w, now)
		return
	}
	few := words{x: w[0], y: w[1]}
	if r.words > 2 {
		few.z = w[2]
	}
	v.Used, v.At, v.words = r.roll(a, few, now)
	v.Beside = nil
}

// ViewOf is View of words that are no slice, for the kinds that are stored as
// words: as a slice they would escape.
func (a *Algorithm) ViewOf(w [3]int64, now int64) (v View) {
	if r := a.rule(); r.words > 0 {
		v.Used, v.At, v.words = r.roll(a, words{w[0], w[1], w[2]}, now)
	}
	return v
}

// Seen is the View of a key whose words stayed in the store, for the other
// kinds: what they use, and their newest instant. RetryAt can't be asked of it:
// the store answers that too.
func (a *Algorithm) Seen(used, newest, now int64) View {
	v := View{Used: used, At: now, words: words{x: newest}}
	if !a.Kind().Leased() { // whose newest instant is an end
		v.At = max(now, newest)
	}
	return v
}

// Newest returns the newest instant of a View as Seen takes it, of the kinds that Seen is
// for.
func (v *View) Newest() int64 { return v.x }

// Add charges n units to the view only. To charge none changes nothing.
func (a *Algorithm) Add(v *View, n int64) {
	if n > 0 {
		v.Used += n
		v.words = a.rule().charge(a, v.words, v.At, n)
	}
}

// Take charges n units to the view and writes the words, which may have
// moved: use the slice that it returns. The view is spent: look again. To
// charge none writes nothing.
func (a *Algorithm) Take(w []int64, v *View, n int64) []int64 {
	if n == 0 {
		return w
	}
	r := a.rule()
	if r.take != nil {
		w = r.take(a, w, *v, n)
	}
	v.Used += n
	v.words = r.charge(a, v.words, v.At, n)
	if r.words > 0 {
		r.write(w, v.words)
		r.count(w, n)
	}
	return w
}

// AddReserved is Add of units that may be given back.
func (a *Algorithm) AddReserved(v *View, n int64) {
	r := a.rule()
	if r.reserve == nil || n == 0 {
		a.Add(v, n)
		return
	}
	v.Used += n
	v.words = r.reserve(a, v.words, v.At, n)
}

// Reserve is Take of units that may be given back; see Charged.
func (a *Algorithm) Reserve(w []int64, v *View, n int64) []int64 {
	r := a.rule()
	if r.reserve == nil || n == 0 {
		return a.Take(w, v, n)
	}
	a.AddReserved(v, n)
	r.write(w, v.words)
	r.count(w, n)
	return w
}

// RetryAt returns the first instant at which n units fit if no other call
// takes, for an n that does not fit now. That instant never comes if n is above Max.
func (a *Algorithm) RetryAt(w []int64, v *View, n int64) int64 {
	//mutant:shadow-never-fits
	if n > a.max {
		return longest
	}
	if v.Beside != nil && len(v.Beside.Ends) > 0 {
		return a.retryBeside(w, v, n)
	}
	return a.rule().retryAt(a, w, *v, n)
}

// ResetAt returns the first instant at which the key is unused, 0 for a key
// that is so already.
func (a *Algorithm) ResetAt(v *View) int64 {
	if v.Beside != nil && len(v.Beside.Ends) > 0 {
		return a.resetBeside(v)
	}
	if a.Shown(v) == 0 {
		return 0
	}
	return a.rule().resetAt(a, v.words)
}
