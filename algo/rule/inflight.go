package rule

import (
	"math"
	"sort"
	"time"
)

// KindInFlight is InFlight's number.
const KindInFlight Kind = 6

// InFlight is documented in package algo.
func InFlight(limit int64) Algorithm { return inFlight.make(Limit{Events: limit}, limit, 0) }

// The words are head, number of slots, then pairs of the lease's end and 64 bits of
// its ID, sorted. In a View x is the last end, y the first slot that is held. z is how
// many there are (both as positions from the head).

var inFlight = rule{
	kind: KindInFlight, name: "InFlight", storage: StoredApart, mark: "run", most: MaxLogLimit, leased: true,
	derive: func(a *Algorithm) { a.period, a.fill, a.identity.Period = maxLease, maxLease, 0 },
	worst:  func(*Algorithm, int64) int64 { return math.MaxInt64 },

	newWords: func(*Algorithm) int { return slotHeader },
	view:     slotView,
	charge:   unchanged,
	retryAt:  func(a *Algorithm, w []int64, v View, n int64) int64 { return w[slotAt(w, v.y+v.Used+n-a.max-1)] },
	resetAt:  func(_ *Algorithm, w words) int64 { return w.x },
}

// maxLease is the longest that a slot can be held.
const maxLease = int64(24 * time.Hour / time.Microsecond)

const slotHeader = 2

// slotAt returns the index of the i-th slot from the head.
func slotAt(w []int64, i int64) int64 { return slotHeader + 2*(w[0]+i) }

// slotView counts the slots that end after now. The last one ends at most the greatest
// length of a lease after now, and as much later after a step back of one period.
func slotView(_ *Algorithm, w []int64, now int64) View {
	n := w[1]
	//mutant:slots-far-ahead
	if n > 0 && w[slotAt(w, n-1)] > now+2*maxLease {
		return View{At: now, words: words{y: n, z: n}}
	}
	//mutant:slot-ends
	held := int64(sort.Search(int(n), func(i int) bool { return w[slotAt(w, int64(i))] > now }))
	v := View{Used: n - held, At: now, words: words{y: held, z: n}}
	if v.Used > 0 {
		v.x = w[slotAt(w, n-1)]
	}
	return v
}

// Held adds a slot to the view only, held until end.
func (a *Algorithm) Held(v *View, end int64) { v.Used, v.x = v.Used+1, max(v.x, end) }

// Hold takes a slot of an InFlight for a lease, until its end, and returns the
// words, which may have moved. The view gets it too; look again for RetryAt.
func (a *Algorithm) Hold(w []int64, v *View, end, id int64) []int64 {
	w[0], w[1] = w[0]+v.y, w[1]-v.y // what has ended leaves
	v.z, v.y = w[1], 0
	w = slotRoom(w)
	from := slotAt(w, slotFind(w, end, id))
	last := slotAt(w, w[1])
	copy(w[from+2:last+2], w[from:last])
	w[from], w[from+1] = end, id
	w[1]++
	a.Held(v, end)
	return w
}

// Release frees the slot of a lease that ends at an instant. It reports whether the
// slot was there. The slots before it move, or those behind, whichever are fewer.
func (a *Algorithm) Release(w []int64, end, id int64) bool {
	i := slotFind(w, end, id)
	at, last := slotAt(w, i), slotAt(w, w[1])
	if i == w[1] || w[at] != end || w[at+1] != id {
		return false
	}
	//mutant:fewer-slots-move
	if head := slotAt(w, 0); at-head < last-at {
		copy(w[head+2:at+2], w[head:at])
		w[0]++
	} else {
		copy(w[at:last-2], w[at+2:last])
	}
	w[1]--
	return true
}

// slotFind returns the first slot that is not before an end and an ID.
func slotFind(w []int64, end, id int64) int64 {
	return int64(sort.Search(int(w[1]), func(i int) bool {
		at := slotAt(w, int64(i))
		return w[at] > end || w[at] == end && w[at+1] >= id
	}))
}

// slotRoom returns the words with room for one more slot behind the last, and not
// for more than four times as many as are held.
func slotRoom(w []int64) []int64 {
	n, c := w[1], int64(len(w)-slotHeader)/2
	large := c > max(16, 4*n)
	if w[0]+n < c && !large {
		return w
	}
	to := w
	if large || 2*n >= c {
		to = make([]int64, slotHeader+2*max(4, 2*n))
	}
	copy(to[slotHeader:], w[slotAt(w, 0):slotAt(w, n)])
	to[0], to[1] = 0, n
	return to
}
