package rule

// KindFixedWindow is FixedWindow's number.
const KindFixedWindow Kind = 1

// FixedWindow is documented in package algo.
func FixedWindow(l Limit) Algorithm { return fixedWindow.make(l, l.Events, 0) }

// The words are x, the window's start, and y, its count.

var fixedWindow = rule{
	kind: KindFixedWindow, name: "FixedWindow", storage: StoredWords, mark: "f", words: 2, most: MaxCount,
	worst: alignedWorst,

	roll: func(a *Algorithm, w words, now int64) (used, at int64, rolled words) {
		if w.x > now+a.period {
			w = words{}
		}
		at = max(now, w.x)
		start := at - at%a.period
		if w.x < start {
			w.y = 0
		}
		return w.y, at, words{start, w.y, 0}
	},
	charge: func(_ *Algorithm, w words, _, n int64) words { return words{w.x, w.y + n, 0} },
	giveBack: func(a *Algorithm, w words, _ int64, c Charge, n int64) (words, bool) {
		//mutant:give-back-window
		if w.x != c.At-c.At%a.period {
			return w, false
		}
		return words{w.x, w.y - min(n, w.y), 0}, w.y > 0
	},
	closes:  func(a *Algorithm, w words) int64 { return w.x + a.period },
	retryAt: func(a *Algorithm, _ []int64, v View, _ int64) int64 { return v.x + a.period },
	resetAt: func(a *Algorithm, w words) int64 { return w.x + a.period },
}

// alignedWorst is that of a kind which holds its limit in each of the
// clock-aligned windows: of those t instants touch at most this many.
func alignedWorst(a *Algorithm, t int64) int64 {
	return saturate(ceilDiv(max(t-1, 0), a.period)+1, a.max)
}
