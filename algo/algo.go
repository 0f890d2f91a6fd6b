// Package algo holds the rate limiting algorithms: each one rule in whole
// numbers, with no clock, no lock and no I/O. Package lua holds the same
// rules, step for step, for Redis.
//
// What a rule keeps of a key is a few words: int64s whose meaning does not
// depend on the limit, so that a limit can change while counts live. Time is
// an argument: microseconds of the Unix epoch, 0 to 2^52.
//
// A clock may step. What is stored at most one period ahead of now stands
// until its time comes; what is further ahead counts as absent. So a step
// back adds at most one period of waiting, or frees one limit.
package algo

import (
	"cmp"
	"fmt"
	"time"
)

// Kind is an algorithm's name on the wire; see package lua.
type Kind uint8

// The kinds. The zero Kind is none.
const (
	KindFixedWindow Kind = iota + 1
	KindSlidingWindow
	KindTokenBucket
	KindBucketedWindow
	KindSlidingLog
)

// String returns the algorithm's name.
func (k Kind) String() string {
	if k == 0 {
		return "none"
	}
	return cmp.Or(k.rule().name, "unknown")
}

// Algorithm is a rule with its numbers. It is a comparable value, safe to
// copy and share. The zero Algorithm is none and refused.
type Algorithm struct {
	kind   Kind
	limit  Limit
	max    int64 // the most units that can count at once: the limit, or the burst
	period int64 // µs
	a, b   int64 // the kind's own numbers, derived once; named in the kind's file
	fill   int64 // µs that the newest stored instant may lie ahead of now
	sound  bool  // Check found nothing
}

// checked completes an algorithm. One that is out of range keeps its numbers
// for the error but grants nothing, so that no arithmetic meets them.
func checked(a Algorithm) Algorithm {
	a.sound = a.Check() == nil
	return a
}

// Kind returns which algorithm it is.
func (a *Algorithm) Kind() Kind { return a.kind }

// Identity says which count an algorithm decides on. Under one policy name,
// algorithms of equal identity share a count, whatever their limits, and others
// count apart. It is comparable.
type Identity struct {
	Kind    Kind
	Period  int64 // µs; 0 for a TokenBucket, whose level does not depend on it
	Buckets int64 // 0 for any but a BucketedWindow
}

// Identity returns whose count the algorithm decides on.
func (a *Algorithm) Identity() Identity {
	switch a.kind {
	case KindTokenBucket:
		return Identity{Kind: a.kind}
	case KindBucketedWindow:
		return Identity{a.kind, a.period, a.a}
	}
	return Identity{Kind: a.kind, Period: a.period}
}

// Limit returns the units a period that it was made with.
func (a *Algorithm) Limit() Limit { return a.limit }

// Max returns the most units that can count at once, which is also the
// largest cost that can ever pass: the limit, or the burst of a TokenBucket.
// It is 0 for an Algorithm that Check refuses.
func (a *Algorithm) Max() int64 {
	if !a.sound {
		return 0
	}
	return a.max
}

// Numbers returns what package lua needs of the algorithm, in its order.
func (a *Algorithm) Numbers() (max, period, x, y, fill int64) {
	return a.max, a.period, a.a, a.b, a.fill
}

// String returns the algorithm as "SlidingWindow(100 per 1m0s)".
func (a *Algorithm) String() string {
	switch a.kind {
	case KindTokenBucket:
		return fmt.Sprintf("%v(%v, burst %d)", a.kind, a.limit, a.max)
	case KindBucketedWindow:
		return fmt.Sprintf("%v(%v, %d buckets)", a.kind, a.limit, a.a)
	}
	return fmt.Sprintf("%v(%v)", a.kind, a.limit)
}

// Check says whether the numbers are in range. The error is an *InvalidError.
func (a *Algorithm) Check() error {
	if a.kind < KindFixedWindow || a.kind > KindSlidingLog {
		return &InvalidError{What: "algorithm", Value: a.kind.String(), Want: "one made by this package's functions"}
	}
	most := int64(MaxLimit)
	if a.kind == KindSlidingLog {
		most = MaxLogLimit
	}
	if err := within("limit", a.limit.Events, 1, most); err != nil {
		return err
	}
	p := a.limit.Period
	if p < MinPeriod || p > MaxPeriod || p%time.Microsecond != 0 {
		return &InvalidError{What: "period", Value: p, Want: fmt.Sprintf("%v to %v in whole microseconds", MinPeriod, MaxPeriod)}
	}
	return a.checkOwn()
}

func (a *Algorithm) checkOwn() error {
	switch a.kind {
	case KindTokenBucket:
		return within("burst", a.max, 1, MaxLimit)
	case KindBucketedWindow:
		return within("buckets", a.a, 2, min(MaxBuckets, a.period))
	}
	return nil
}

// Share returns the algorithm with its numbers times num / den, rounded down
// so that shares never sum to more than the whole. A share below one unit is
// an Algorithm that Check refuses and that grants nothing.
func (a Algorithm) Share(num, den int64) Algorithm {
	l := Limit{Events: mulDiv(a.limit.Events, num, den), Period: a.limit.Period}
	switch a.kind {
	case KindTokenBucket:
		return TokenBucket(l, mulDiv(a.max, num, den))
	case KindBucketedWindow:
		return BucketedWindow(l, a.a)
	}
	return window(a.kind, l)
}

// Worst returns the most units that any trailing window of that length can
// hold, where the numbers don't change and the clock doesn't step. It is 0 for
// an Algorithm that Check refuses.
func (a *Algorithm) Worst(window time.Duration) int64 {
	t := window.Microseconds()
	if !a.sound || t <= 0 {
		return 0
	}
	switch a.kind {
	case KindTokenBucket:
		return a.tokenWorst(t)
	case KindFixedWindow, KindSlidingWindow:
		// t instants touch at most this many clock-aligned windows.
		return saturate(ceilDiv(max(t-1, 0), a.period)+1, a.max)
	}
	return saturate(ceilDiv(t, a.period), a.max)
}

// View is what a key's words amount to at an instant. It is a value, so that
// looking changes nothing: only Take writes.
type View struct {
	Used int64 // units that count, rounded up; a cost n fits where Used + n <= Max
	At   int64 // the instant a take is recorded at: now, or the newest stored one where that is ahead

	x, y, z int64 // the words, rolled forward to now; named in the kind's file
}

// Fits reports whether n units pass.
func (a *Algorithm) Fits(v *View, n int64) bool { return v.Used+n <= a.max }

// Words returns how many int64s a new key takes.
func (a *Algorithm) Words() int {
	switch a.kind {
	case KindSlidingWindow:
		return 3
	case KindBucketedWindow:
		return a.bucketWords()
	case KindSlidingLog:
		return logHeader
	}
	return 2
}

// View reads a key's words at now. Words all zero are a new key.
func (a *Algorithm) View(w []int64, now int64) (v View) {
	a.Look(&v, w, now)
	return v
}

// Look is View where the result has a place already: it has more fields than
// the compiler keeps in registers, and copying it took longer than making it.
func (a *Algorithm) Look(v *View, w []int64, now int64) {
	switch a.kind {
	case KindFixedWindow:
		a.fixedView(v, w, now)
	case KindSlidingWindow:
		a.slidingView(v, w, now)
	case KindTokenBucket:
		a.tokenView(v, w, now)
	case KindBucketedWindow:
		*v = a.bucketView(w, now)
	default:
		*v = a.logView(w, now)
	}
}

// Seen is the View of a key whose words stayed in the store, for the kinds
// that keep many: what they use, and their newest instant. RetryAt can't be
// asked of it; the store says that too.
func (a *Algorithm) Seen(used, newest, now int64) View {
	return View{Used: used, At: max(now, newest), x: newest}
}

// Add charges n units to the view alone.
func (a *Algorithm) Add(v *View, n int64) {
	v.Used += n
	switch a.kind {
	case KindFixedWindow:
		v.y += n
	case KindSlidingWindow:
		v.z += n
	case KindTokenBucket:
		v.x += n * fraction
		v.y, v.z = v.x, v.At
	case KindBucketedWindow:
		v.x = v.At - v.At%a.b
	default:
		v.x = v.At
	}
}

// Take charges n units to the view and writes the words, which may have
// moved: use the slice that it returns. The view is spent: look again.
func (a *Algorithm) Take(w []int64, v *View, n int64) []int64 {
	switch a.kind {
	case KindBucketedWindow:
		w = a.bucketTake(w, v, n)
	case KindSlidingLog:
		w = a.logTake(w, v, n)
	}
	a.Add(v, n)
	switch a.kind {
	case KindFixedWindow:
		w[0], w[1] = v.x, v.y
	case KindSlidingWindow:
		w[0], w[1], w[2] = v.x, v.y, v.z
	case KindTokenBucket:
		w[0], w[1] = v.x, v.At
	}
	return w
}

// RetryAt returns the first instant at which n units fit if nobody else
// takes, for an n that does not fit now and is at most Max.
func (a *Algorithm) RetryAt(w []int64, v *View, n int64) int64 {
	switch a.kind {
	case KindFixedWindow:
		return v.x + a.period
	case KindSlidingWindow:
		return a.slidingRetryAt(v.x, v.y, v.z, n)
	case KindTokenBucket:
		return a.tokenRetryAt(v, n)
	case KindBucketedWindow:
		return a.bucketRetryAt(w, v, v.Used+n-a.max)
	}
	return a.logRetryAt(w, v, v.Used+n-a.max)
}

// ResetAt returns the first instant at which the key is as new, 0 for a key
// that is so already.
func (a *Algorithm) ResetAt(v *View) int64 {
	if v.Used == 0 {
		return 0
	}
	switch a.kind {
	case KindFixedWindow:
		return v.x + a.period
	case KindSlidingWindow:
		return a.slidingResetAt(v.x, v.y, v.z)
	case KindTokenBucket:
		return a.tokenResetAt(v)
	case KindBucketedWindow:
		return a.bucketEnd(v.x)
	}
	return v.x + a.period
}
