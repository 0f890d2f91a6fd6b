package rule

// KindSlidingWindow is SlidingWindow's number.
const KindSlidingWindow Kind = 2

// SlidingWindow is documented in package algo.
func SlidingWindow(l Limit) Algorithm { return slidingWindow.make(l, l.Events, 0) }

// The words are x, the current bucket's start, y, the previous count, and z, the
// current one.

var slidingWindow = rule{
	kind: KindSlidingWindow, name: "SlidingWindow", storage: StoredWords, mark: "s", words: 3, most: MaxLimit, carries: true,
	worst: alignedWorst,

	roll:     slidingRoll,
	charge:   func(_ *Algorithm, w words, _, n int64) words { return words{w.x, w.y, w.z + n} },
	giveBack: slidingGiveBack,
	returns:  slidingReturn,
	closes:   func(a *Algorithm, w words) int64 { return w.x + a.period },
	retryAt:  slidingRetryAt,
	resetAt:  slidingResetAt,
}

func slidingRoll(a *Algorithm, w words, now int64) (used, at int64, rolled words) {
	if w.x > now+a.period {
		w = words{}
	}
	at = max(now, w.x)
	start := at - at%a.period
	if w.x < start {
		if w.x < start-a.period {
			w.z = 0
		}
		w.y, w.z = w.z, 0
	}
	used = w.z
	if w.y > 0 {
		used += mulDiv(w.y, a.period-(at-start), a.period)
	}
	return used, at, words{start, w.y, w.z}
}

// slidingGiveBack finds the bucket that was charged, which may be the previous one
// by now.
func slidingGiveBack(a *Algorithm, w words, _ int64, c Charge, n int64) (words, bool) {
	switch c.At - c.At%a.period {
	case w.x:
		return words{w.x, w.y, w.z - min(n, w.z)}, w.z > 0
	//mutant:give-back-previous
	case w.x - a.period:
		return words{w.x, w.y - min(n, w.y), w.z}, w.y > 0
	}
	return w, false
}

// slidingReturn takes units out of the current bucket, and then as much out of the previous one
// as makes it weigh less by the rest.
func slidingReturn(a *Algorithm, w []int64, v View, n int64) []int64 {
	weight := v.Used - v.z
	back := min(n, v.z)
	//mutant:return-weighs
	if v.z -= back; n > back {
		v.y = mulDivUp(weight-(n-back)+1, a.period, a.period-(v.At-v.x)) - 1
	}
	a.rule().write(w, v.words)
	return w
}

func slidingRetryAt(a *Algorithm, _ []int64, v View, n int64) int64 {
	room := a.max - n
	if v.z <= room { // only the previous bucket is in the way
		return v.x + a.fadesTo(v.y, room-v.z)
	}
	return v.x + a.period + a.fadesTo(v.z, room)
}

func slidingResetAt(a *Algorithm, w words) int64 {
	if w.z > 0 {
		return w.x + a.period + a.fadesTo(w.z, 0)
	}
	return w.x + a.fadesTo(w.y, 0)
}

// fadesTo returns after how much of the next bucket a count weighs most or less. It is
// the least e with floor(count * (period - e) / period) <= most. That is
// count * (period - e) < (most + 1) * period.
func (a *Algorithm) fadesTo(count, most int64) int64 {
	if count <= most {
		return 0
	}
	return a.period + 1 - mulDivUp(most+1, a.period, count)
}
