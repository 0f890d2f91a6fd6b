package rule

import "fmt"

// KindBucketedWindow is BucketedWindow's number.
const KindBucketedWindow Kind = 4

// BucketedWindow is documented in package algo.
func BucketedWindow(l Limit, buckets int64) Algorithm {
	return bucketedWindow.make(l, l.Events, buckets)
}

// a is the number of buckets, b their width in µs.
// The words are start, sum, then the counts as a ring. The bucket that
// starts at s has the slot (s / width) mod (buckets + 1). In a View x is the
// newest bucket's start, y the start of the oldest that counts.

var bucketedWindow = rule{
	kind: KindBucketedWindow, name: "BucketedWindow", storage: StoredPacked, mark: "b", most: MaxLimit,

	derive: bucketDerive,
	check:  func(a *Algorithm) error { return within("buckets", a.a, 2, min(MaxBuckets, a.period)) },
	own:    func(a *Algorithm) string { return fmt.Sprintf("%d buckets", a.a) },
	random: func(r *rule, l Limit, pick func(least, most int64) int64) Algorithm {
		return r.make(l, l.Events, pick(2, min(MaxBuckets, l.Period.Microseconds())))
	},
	worst: trailingWorst,

	newWords: (*Algorithm).bucketWords,
	view:     (*Algorithm).bucketView,
	take:     (*Algorithm).bucketTake,
	refund:   bucketRefund,
	returns:  bucketReturn,
	charge:   func(a *Algorithm, w words, at, _ int64) words { return words{at - at%a.b, w.y, w.z} },
	retryAt:  bucketRetryAt,
	resetAt:  func(a *Algorithm, w words) int64 { return a.bucketEnd(w.x) },
}

func bucketDerive(a *Algorithm) {
	a.a, a.b = a.own, max(ceilDiv(a.period, max(a.own, 1)), 1)
	a.identity.Buckets = a.a
}

const bucketHeader = 2

func (a *Algorithm) bucketWords() int { return bucketHeader + int(min(max(a.a, 0), MaxBuckets)) + 1 }

// ring returns how many counts a BucketedWindow keeps.
func (a *Algorithm) ring() int64 { return a.a + 1 }

func (a *Algorithm) slot(start int64) int64 { return bucketHeader + start/a.b%a.ring() }

// bucketEnd returns when the bucket's last microsecond has left the window.
func (a *Algorithm) bucketEnd(start int64) int64 { return start + a.b - 1 + a.period }

// oldest returns the first bucket that the ring ending at newest still holds.
func (a *Algorithm) oldest(newest int64) int64 { return max(0, newest-a.a*a.b) }

func (a *Algorithm) bucketView(w []int64, now int64) View {
	if w[0] > now+a.period || len(w) != a.bucketWords() {
		return View{At: now}
	}
	newest, used := w[0], w[1]
	oldest := a.oldest(newest)
	for oldest <= newest && a.bucketEnd(oldest) <= now {
		used -= w[a.slot(oldest)]
		oldest += a.b
	}
	if used == 0 {
		newest = 0
	}
	return View{Used: used, At: max(now, newest), words: words{x: newest, y: oldest}}
}

func (a *Algorithm) bucketTake(w []int64, v View, n int64) []int64 {
	newest := v.At - v.At%a.b
	switch {
	case len(w) != a.bucketWords():
		w = make([]int64, a.bucketWords())
	case v.Used == 0:
		clear(w)
	default:
		a.clear(w, v)
	}
	w[0], w[1] = newest, v.Used+n
	w[a.slot(newest)] += n
	return w
}

// clear empties what the view no longer counts: the buckets before the oldest.
func (a *Algorithm) clear(w []int64, v View) {
	for s := a.oldest(w[0]); s < v.y; s += a.b {
		w[a.slot(s)] = 0
	}
}

// bucketRefund takes units out of the bucket that was charged, if it counts. Where
// the newest bucket is empty then, the one before it that is not is the newest.
// The key is unused when its last unit has left. The ring's slots behind it are
// empty, and so are the older buckets that they stand for then.
func bucketRefund(a *Algorithm, w []int64, v View, c Charge, n int64) []int64 {
	s := c.At - c.At%a.b
	//mutant:give-back-bucket
	if v.Used == 0 || s < v.y || s > v.x {
		return w
	}
	return bucketLess(a, w, v, n, s, s)
}

// bucketReturn takes units out of the newest buckets.
func bucketReturn(a *Algorithm, w []int64, v View, n int64) []int64 {
	return bucketLess(a, w, v, n, v.x, v.y)
}

// bucketLess takes up to n units out of a bucket, and out of those before it down to another one.
func bucketLess(a *Algorithm, w []int64, v View, n, from, to int64) []int64 {
	w[1] = v.Used
	for s := from; n > 0 && s >= to; s -= a.b {
		back := min(n, w[a.slot(s)])
		w[a.slot(s)] -= back
		w[1] -= back
		n -= back
	}
	a.clear(w, v)
	//mutant:give-back-newest
	for w[1] > 0 && w[a.slot(w[0])] == 0 {
		w[0] -= a.b
	}
	return w
}

// bucketRetryAt returns when the oldest units, as many as are in the way, have
// left.
func bucketRetryAt(a *Algorithm, w []int64, v View, n int64) int64 {
	s, need := v.y, v.Used+n-a.max
	for ; s < v.x; s += a.b {
		if need -= w[a.slot(s)]; need <= 0 {
			break
		}
	}
	return a.bucketEnd(s)
}
