package algo

// TokenBucket lets burst units pass at once and refills at rate: over any
// time t at most burst + rate*t. It is what people call token bucket, leaky
// bucket as a meter, and GCRA (ITU-T I.371, the virtual scheduling
// algorithm); the three decide alike and the code has one.
//
// Kept: the level, in 2^-20 of a unit, and its instant. A stored arrival
// time, as GCRA is usually written, would change its meaning with the rate.
// Each take rounds the level up by less than 2^-20 of a unit, so a rate of
// any odd number is never passed and met to one part in a million.
func TokenBucket(rate Limit, burst int64) Algorithm {
	a := Algorithm{kind: KindTokenBucket, limit: rate, max: burst, period: rate.Period.Microseconds()}
	num, den := min(max(rate.Events, 1), MaxLimit)*fraction, max(a.period, 1)
	g := gcd(num, den)
	a.a, a.b = num/g, den/g
	a.fill = a.leaks(burst * fraction)
	return checked(a)
}

// fraction is how many parts a unit has: 2^31 units of it stay below 2^53.
const (
	fractionBits = 20
	fraction     = 1 << fractionBits
)

// longest is where an instant's distance is cut: 2^52 µs are 142 years, and
// now + longest is still a whole number below 2^53.
const longest = 1 << 52

var tokenBucket = rule{name: "TokenBucket", storage: StoredWords, letter: 't'}

// In a token Algorithm a/b is how many fractions leak a microsecond, reduced;
// fill is how long a full bucket takes to be as new. In a token View x is the
// level at View.At, and y the level that was stored at the instant z: an
// instant to come is reckoned from those, since x is rounded and rounding
// twice would put it up to b/a µs too late.

func (a *Algorithm) tokenView(v *View, w []int64, now int64) {
	v.x, v.At, v.y, v.z = a.leaked(w[0], w[1], now)
	v.Used = units(v.x)
}

// leaked rolls a level and its instant forward to now, and returns them behind
// the new ones, nothing where they count as absent.
func (a *Algorithm) leaked(level, then, now int64) (left, at, was, since int64) {
	if then > now+a.fill {
		level, then = 0, 0
	}
	if then >= now { // calls of one microsecond are many, and a division is dear
		return level, then, level, then
	}
	return a.after(level, now-then), now, level, then
}

// after returns what is left of a level when so much time has passed.
func (a *Algorithm) after(level, passed int64) int64 { return max(0, level-mulDiv(passed, a.a, a.b)) }

func units(level int64) int64 { return (level + fraction - 1) >> fractionBits }

// leaks returns how long it takes until that much has leaked.
func (a *Algorithm) leaks(level int64) int64 { return min(mulDivUp(level, a.b, a.a), longest) }

func (a *Algorithm) tokenRetryAt(v *View, n int64) int64 {
	return v.z + a.leaks(v.y-(a.max-n)*fraction)
}

func (a *Algorithm) tokenResetAt(v *View) int64 { return v.z + a.leaks(v.y) }

func (a *Algorithm) tokenWorst(t int64) int64 {
	leaked := mulDiv(t, a.limit.Events, max(a.period, 1))
	return a.max + min(leaked, 1<<62)
}
