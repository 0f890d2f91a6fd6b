package algo

// SlidingWindow counts in two clock-aligned buckets and weighs the previous
// one by how much of it the trailing window still covers:
//
//	floor(previous * (period - elapsed) / period) + current
//
// It takes the previous bucket's calls as spread evenly. Traffic made for it
// can pass twice the limit in a trailing window; over 400 million published
// requests 0.003 % were decided wrongly (Cloudflare, "How we built rate
// limiting capable of scaling to millions of domains", 2017).
//
// Kept: the current bucket's start, the previous count, the current count.
func SlidingWindow(l Limit) Algorithm {
	return window(KindSlidingWindow, l)
}

var slidingWindow = rule{name: "SlidingWindow", storage: StoredWords, letter: 's'}

// In a sliding View x is the current bucket's start, y the previous count, z
// the current one.

func (a *Algorithm) slidingView(v *View, w []int64, now int64) {
	v.Used, v.At, v.x, v.y, v.z = a.slid(w[0], w[1], w[2], now)
}

// slid rolls a bucket and the counts of the one before and its own forward to now.
func (a *Algorithm) slid(start, prev, cur, now int64) (used, at, bucket, before, counts int64) {
	if start > now+a.period {
		start, prev, cur = 0, 0, 0
	}
	at = max(now, start)
	bucket = at - at%a.period
	if start < bucket {
		if start < bucket-a.period {
			cur = 0
		}
		prev, cur = cur, 0
	}
	used = cur
	if prev > 0 {
		used += mulDiv(prev, a.period-(at-bucket), a.period)
	}
	return used, at, bucket, prev, cur
}

func (a *Algorithm) slidingRetryAt(bucket, prev, cur, n int64) int64 {
	room := a.max - n
	if cur <= room { // the previous bucket alone is in the way
		return bucket + a.fadesTo(prev, room-cur)
	}
	return bucket + a.period + a.fadesTo(cur, room)
}

func (a *Algorithm) slidingResetAt(bucket, prev, cur int64) int64 {
	if cur > 0 {
		return bucket + a.period + a.fadesTo(cur, 0)
	}
	return bucket + a.fadesTo(prev, 0)
}

// fadesTo returns how far into the bucket after it a count weighs at most
// most: the least e with floor(count * (period - e) / period) <= most.
// That is count * (period - e) < (most + 1) * period.
func (a *Algorithm) fadesTo(count, most int64) int64 {
	if count <= most {
		return 0
	}
	return a.period + 1 - mulDivUp(most+1, a.period, count)
}
