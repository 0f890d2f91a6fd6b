package rule

import "fmt"

// KindTokenBucket is TokenBucket's number.
const KindTokenBucket Kind = 3

// TokenBucket is documented in package algo.
//
// Each take rounds the level up by less than 2^-15 of a unit. So a rate of
// any odd number is never passed and met to one part in 32,768. A reservation
// and its settlement can leave no unit behind. So they leave the instant in its
// place until 2^-4 of a unit has leaked, and round only then.
//
// Beside the level stands the sum of all charges since the key was new. A reservation
// gives back no more than the level, less what was charged since. That is the rest of the
// level just after its charge that has neither leaked, by whatever rate, nor been given
// back. That is exact if there was no other call meanwhile. Else it may be too little,
// and never too much: what was used stays below burst + rate*t.
func TokenBucket(rate Limit, burst int64) Algorithm { return tokenBucket.make(rate, burst, 0) }

// The words are x, the level at the instant y, and once rolled z, what is left
// of it. An instant to come is reckoned from x and y. For z is rounded, and
// rounding twice would put it up to b/a µs too late.

var tokenBucket = rule{
	kind: KindTokenBucket, name: "TokenBucket", storage: StoredWords, mark: "t", words: 2, beside: 1, most: MaxLimit, rate: true,

	derive: tokenDerive,
	check:  func(a *Algorithm) error { return within("burst", a.max, 1, MaxLimit) },
	own:    func(a *Algorithm) string { return fmt.Sprintf("burst %d", a.max) },
	random: func(r *rule, l Limit, pick func(least, most int64) int64) Algorithm {
		return r.make(l, pick(1, MaxLimit), 0)
	},
	widest: func(r *rule, _ Identity) Algorithm { return r.make(Limit{1, MaxPeriod}, 1, 0) },
	worst: func(a *Algorithm, t int64) int64 {
		return a.max + min(mulDiv(t, a.limit.Events, a.period), 1<<62)
	},

	roll: tokenRoll,
	charge: func(_ *Algorithm, w words, at, n int64) words {
		level := w.z + n*fraction
		return words{level, at, level}
	},
	reserve: tokenReserve,
	refund:  tokenGiveBack,
	retryAt: func(a *Algorithm, _ []int64, v View, n int64) int64 {
		//mutant:retry-rounds-once
		return v.y + a.leaks(v.x-(a.max-n)*fraction)
	},
	resetAt: func(a *Algorithm, w words) int64 { return w.y + a.leaks(w.x) },
}

// Level returns the level that a TokenBucket keeps, in fractions of a unit. It is 0 for other
// kinds, and if nothing is left of it. A store may have removed it by then.
func (a *Algorithm) Level(v *View) int64 {
	//mutant:no-level-without-a-rest
	if a.Kind() != KindTokenBucket || v.z == 0 {
		return 0
	}
	return v.x
}

// FitsBefore returns how many microseconds before a TokenBucket of a level is empty n units fit.
func (a *Algorithm) FitsBefore(level, n int64) int64 {
	return a.leaks(level) - a.leaks(level-(a.max-n)*fraction)
}

// Refills returns in how many nanoseconds n units come free in a TokenBucket that is not full,
// rounded up; at most the greatest int64.
func (a *Algorithm) Refills(n int64) int64 {
	return mulDivUp(n, int64(a.limit.Period), a.limit.Events)
}

// total is the word of what was charged, in units.
const total = 2

// fraction is how many parts a unit has: 2^37 units of it, twice the greatest
// burst, stay below 2^53.
const (
	fractionBits = 15
	fraction     = 1 << fractionBits

	// unmoved is up to how many fractions a reservation lets leak from an instant that
	// it leaves in its place. By each move less than one is lost.
	unmoved = 1 << 11

	// faster bounds the rates of the other limiters that share a level. A charge that
	// counts from an earlier instant leaks from there on. That is no more than what stood
	// there before, by rates up to one more than that many times as fast.
	faster = 2
)

// longest is where an instant's distance is cut: 2^52 µs are 142 years, and
// now + longest is still a whole number below 2^53.
const longest = 1 << 52

// tokenDerive: a/b is how many fractions leak a microsecond, reduced; fill is
// how long a full bucket takes to be unused.
func tokenDerive(a *Algorithm) {
	num, den := min(max(a.limit.Events, 1), MaxLimit)*fraction, max(a.period, 1)
	g := gcd(num, den)
	a.a, a.b = num/g, den/g
	a.fill = a.leaks(a.max * fraction)
	a.identity.Period = 0
}

func tokenRoll(a *Algorithm, w words, now int64) (used, at int64, rolled words) {
	if w.y > now+a.fill {
		w = words{}
	}
	if at, w.z = w.y, w.x; w.y < now { // calls of one microsecond are many, and a division is slow
		at, w.z = now, max(0, w.x-mulDiv(now-w.y, a.a, a.b))
	}
	return (w.z + fraction - 1) >> fractionBits, at, w
}

// tokenReserve is charge for what may be given back.
func tokenReserve(a *Algorithm, w words, at, n int64) words {
	//mutant:reserve-moves-instant
	if !stays(w, w.z) {
		return a.rule().charge(a, w, at, n)
	}
	return words{w.x + n*fraction, w.y, w.z + n*fraction}
}

// stays reports whether the instant of a level may stay where it is, if that much of the
// level is left by now.
func stays(w words, level int64) bool {
	leaked := w.x - w.z
	//mutant:instant-stays-of-little
	return w.z > 0 && leaked < unmoved && level >= faster*(leaked+1)
}

// tokenGiveBack leaves in the level at least what was charged since: what left it
// meanwhile would, without the charge, have left nothing. If it leaves no more, the
// remainder of the level's last fraction counts, and it moves to now.
func tokenGiveBack(_ *Algorithm, w []int64, v View, c Charge, n int64) []int64 {
	//mutant:give-back-twice
	left := v.z - saturate(w[total]-c.Total, fraction)
	back := min(n*fraction, left)
	switch {
	case back <= 0:
	//mutant:give-back-moves-instant
	case back < left && stays(v.words, v.z-back):
		w[0] = v.x - back
	default:
		w[0], w[1] = v.z-back, v.At
	}
	return w
}

// leaks returns how long it takes until that much has leaked.
func (a *Algorithm) leaks(level int64) int64 { return min(mulDivUp(level, a.b, a.a), longest) }
