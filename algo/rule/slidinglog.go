package rule

import "sort"

// KindSlidingLog is SlidingLog's number.
const KindSlidingLog Kind = 5

// SlidingLog is documented in package algo.
func SlidingLog(l Limit) Algorithm { return slidingLog.make(l, l.Events, 0) }

var slidingLog = rule{
	kind: KindSlidingLog, name: "SlidingLog", storage: StoredApart, mark: "log", most: MaxLogLimit,
	worst: trailingWorst,

	newWords: func(*Algorithm) int { return logHeader },
	view:     (*Algorithm).logView,
	take:     (*Algorithm).logTake,
	refund:   logRefund,
	returns:  logReturn,
	charge:   func(_ *Algorithm, w words, at, _ int64) words { return words{at, w.y, w.z} },
	retryAt:  logRetryAt,
	resetAt:  func(a *Algorithm, w words) int64 { return w.x + a.period },
}

// The words are head, number of entries, base (the sum before the first
// entry), 1 where there is a tree. Then comes the ring: pairs of time and sum up to and
// with the entry, as charged. Times never fall: an entry made while the newest
// lies ahead is recorded with it. The tree, of what was given back, stands behind
// the ring: see slidinglogback.go.
// In a log View x is the newest entry's time, y the first that counts. z is how many
// there are (both as positions from the head).

const (
	logHeader = 4
	logTree   = 3
)

func logCap(w []int64) int64 { return int64(len(w)-logHeader) / (2 + w[logTree]) }

// slotOf returns the place in the ring of the i-th entry from the head.
func slotOf(w []int64, i int64) int64 { return (w[0] + i) % logCap(w) }

// entry returns the index of the i-th entry from the head.
func entry(w []int64, i int64) int64 { return logHeader + slotOf(w, i)*2 }

// sumBefore returns the sum of costs before the i-th entry, as charged.
func sumBefore(w []int64, i int64) int64 {
	if i == 0 {
		return w[2]
	}
	return w[entry(w, i-1)+1]
}

// netBefore returns the sum of costs before the i-th entry, less what the entries
// from the head on gave back.
func netBefore(w []int64, i int64) int64 {
	if w[logTree] == 0 {
		return sumBefore(w, i)
	}
	return sumBefore(w, i) - backBefore(w, i)
}

// first returns the first of n entries that is later than t. It divides once: a
// division for each probe took longer than all else (measured at 10^6 entries).
func first(w []int64, n, t int64) int64 {
	c, head := logCap(w), w[0]
	return int64(sort.Search(int(n), func(i int) bool {
		place := head + int64(i)
		if place >= c {
			place -= c
		}
		return w[logHeader+2*place] > t
	}))
}

func (a *Algorithm) logView(w []int64, now int64) View {
	n := w[1]
	if n > 0 && w[entry(w, n-1)] > now+a.period {
		return View{At: now, words: words{y: n, z: n}}
	}
	//mutant:event-one-period-old
	live := first(w, n, now-a.period)
	if live == n {
		return View{At: now, words: words{y: n, z: n}}
	}
	newest := w[entry(w, n-1)]
	used := netBefore(w, n) - netBefore(w, live)
	return View{Used: used, At: max(now, newest), words: words{newest, live, n}}
}

func (a *Algorithm) logTake(w []int64, v View, n int64) []int64 {
	w = drop(w, v)
	sum := sumBefore(w, w[1]) + n
	if last := w[1] - 1; last >= 0 && w[entry(w, last)] == v.At {
		w[entry(w, last)+1] = sum // calls of one instant leave together
	} else {
		w = fit(w, w[1]+1)
		forgive(w, slotOf(w, w[1]))
		i := entry(w, w[1])
		w[i], w[i+1] = v.At, sum
		w[1]++
	}
	return w
}

// drop forgets what the view no longer counts.
func drop(w []int64, v View) []int64 {
	if v.y == v.z {
		clear(w[:logHeader])
		return w
	}
	w[2] = sumBefore(w, v.y)
	w[0] = (w[0] + v.y) % logCap(w)
	w[1] = v.z - v.y
	return w
}

// fit returns the words with room for n entries. It has no room for more than four
// times as many, so that a key that was busy once gives its memory back.
func fit(w []int64, n int64) []int64 {
	if c := logCap(w); n <= c && c <= max(16, 4*n) {
		return w
	}
	return moved(w, max(4, 2*n), w[logTree])
}

// moved returns the entries in a ring of another size, with a tree or without.
func moved(w []int64, size, tree int64) []int64 {
	grown := make([]int64, logHeader+(2+tree)*size)
	for i := int64(0); i < w[1]; i++ {
		from := entry(w, i)
		copy(grown[logHeader+2*i:], w[from:from+2])
	}
	grown[1], grown[2], grown[logTree] = w[1], w[2], tree
	if w[logTree] == 1 {
		moveBack(w, grown)
	}
	return grown
}

// logRetryAt returns when the oldest units, as many as are in the way, have left.
func logRetryAt(a *Algorithm, w []int64, v View, n int64) int64 {
	base, need := netBefore(w, v.y), v.Used+n-a.max
	i := sort.Search(int(v.z-v.y), func(i int) bool { return netBefore(w, v.y+int64(i)+1)-base >= need })
	return w[entry(w, v.y+int64(i))] + a.period
}
