package rule

import (
	"math/bits"
	"sort"
)

// KindCompactLog is CompactLog's number.
const KindCompactLog Kind = 8

// CompactLog is documented in package algo.
func CompactLog(l Limit) Algorithm { return compactLog.make(l, l.Events, 0) }

// a is how many bits of an entry hold its cost.

var compactLog = rule{
	kind: KindCompactLog, name: "CompactLog", storage: StoredApart, mark: "pack", most: MaxLogLimit,
	derive: func(a *Algorithm) { a.a = int64(min(max(64-bits.Len64(uint64(2*a.period)), 18), 32)) },
	worst:  trailingWorst,

	newWords: func(*Algorithm) int { return compactHeader },
	view:     (*Algorithm).compactView,
	take:     (*Algorithm).compactTake,
	refund:   compactRefund,
	returns:  compactReturn,
	charge:   func(_ *Algorithm, w words, at, _ int64) words { return words{at, w.y, w.z} },
	retryAt:  compactRetryAt,
	resetAt:  func(a *Algorithm, w words) int64 { return w.x + a.period },
}

// The words are head, number of entries, the newest one's time, the sum of all. Then come
// the ring of entries, then the sums of the ring's blocks. An entry is the low bits of
// its time above its cost. All lie within two periods, so the newest time tells the other
// bits. A cost that an entry can't hold takes several of one time. In a View x is the
// newest entry's time, y the first that counts, z how many there are (both as positions
// from the head).

const (
	compactHeader = 4
	compactBlock  = 64 // entries
)

type compact struct {
	w        []int64
	ring     []int64
	sums     []int64
	costBits int64
}

func (a *Algorithm) compact(w []int64) compact {
	rest := w[compactHeader:]
	c := len(rest) * compactBlock / (compactBlock + 1)
	return compact{w, rest[:c], rest[c:], a.a}
}

func (c *compact) place(i int64) int64 { return (c.w[0] + i) % int64(len(c.ring)) }

func (c *compact) time(i int64) int64 {
	low := int64(uint64(c.ring[c.place(i)]) >> c.costBits)
	return c.w[2] - (c.w[2]-low)&(1<<(64-c.costBits)-1)
}

func (c *compact) cost(i int64) int64 { return c.ring[c.place(i)] & (1<<c.costBits - 1) }

// add adds to the cost of an entry.
func (c *compact) add(i, n int64) {
	p := c.place(i)
	c.ring[p] += n
	c.sums[p/compactBlock] += n
	c.w[3] += n
}

// first returns the first entry that is later than t.
func (c *compact) first(t int64) int64 {
	return int64(sort.Search(int(c.w[1]), func(i int) bool { return c.time(int64(i)) > t }))
}

// walk goes over entries from one on to before another, in steps of whole blocks
// where it may. It ends where f returns false.
func (c *compact) walk(from, to int64, f func(i, n, sum int64) bool) {
	for i := from; i < to; {
		p, n, sum := c.place(i), int64(1), c.cost(i)
		if whole := min(compactBlock, int64(len(c.ring))-p); p%compactBlock == 0 && i+whole <= to {
			n, sum = whole, c.sums[p/compactBlock]
		}
		if !f(i, n, sum) {
			return
		}
		i += n
	}
}

// sum returns the units of entries from one on to before another.
func (c *compact) sum(from, to int64) (sum int64) {
	c.walk(from, to, func(_, _, n int64) bool {
		sum += n
		return true
	})
	return sum
}

func (a *Algorithm) compactView(w []int64, now int64) View {
	n, newest := w[1], w[2]
	if n == 0 || newest > now+a.period || newest <= now-a.period {
		return View{At: now, words: words{y: n, z: n}}
	}
	c := a.compact(w)
	live := int64(0)
	//mutant:compact-one-period-old
	if c.time(0) <= now-a.period {
		live = c.first(now - a.period)
	}
	return View{Used: w[3] - c.sum(0, live), At: max(now, newest), words: words{newest, live, n}}
}

func (a *Algorithm) compactTake(w []int64, v View, n int64) []int64 {
	c := a.compact(w)
	c.drop(v)
	most := int64(1)<<a.a - 1
	if last := w[1] - 1; last >= 0 && w[2] == v.At { // calls of one instant leave together
		room := min(n, most-c.cost(last))
		c.add(last, room)
		n -= room
	}
	for ; n > 0; n -= min(n, most) {
		w = a.compactFit(w, w[1]+1)
		c = a.compact(w)
		w[1]++
		w[2] = v.At
		c.ring[c.place(w[1]-1)] = v.At << a.a
		c.add(w[1]-1, min(n, most))
	}
	return w
}

// drop forgets what the view no longer counts.
func (c *compact) drop(v View) {
	if v.y == v.z {
		clear(c.w[:compactHeader])
		clear(c.sums)
		return
	}
	c.walk(0, v.y, func(i, _, sum int64) bool {
		c.sums[c.place(i)/compactBlock] -= sum
		c.w[3] -= sum
		return true
	})
	c.w[0], c.w[1] = c.place(v.y), v.z-v.y
}

// compactFit returns the words with room for n entries, and not for more than four
// times as many. A full log of calls that cost 1 has no room to spare.
func (a *Algorithm) compactFit(w []int64, n int64) []int64 {
	from := a.compact(w)
	if size := int64(len(from.ring)); n <= size && size <= max(16, 4*n) {
		return w
	}
	size := max(4, 2*n)
	if n <= a.max {
		size = min(size, a.max)
	}
	grown := make([]int64, compactHeader+size+ceilDiv(size, compactBlock))
	to := a.compact(grown)
	for i := range w[1] {
		to.ring[i] = from.ring[from.place(i)]
		to.sums[i/compactBlock] += from.cost(i)
	}
	copy(grown[1:compactHeader], w[1:])
	return grown
}

// compactRetryAt returns when the oldest units, as many as are in the way, have left.
func compactRetryAt(a *Algorithm, w []int64, v View, n int64) int64 {
	c, need, i := a.compact(w), v.Used+n-a.max, v.y
	c.walk(i, v.z, func(at, _, sum int64) bool {
		if i = at; sum >= need {
			return false
		}
		need -= sum
		return true
	})
	for ; need > c.cost(i); i++ { // within a block
		need -= c.cost(i)
	}
	return c.time(i) + a.period
}

// compactRefund takes units out of what was charged at an instant, if it counts. Then
// the newest entries leave as far as they are empty, so that the key is unused when
// its last unit has left. The oldest stay, as a SlidingLog's do: they count again where
// the clock goes back.
func compactRefund(a *Algorithm, w []int64, v View, charge Charge, n int64) []int64 {
	c := a.compact(w)
	i := c.first(charge.At - 1)
	//mutant:compact-give-back
	if i < v.y {
		return w
	}
	for ; i < v.z && n > 0 && c.time(i) == charge.At; i++ {
		back := min(n, c.cost(i))
		c.add(i, -back)
		n -= back
	}
	return c.trim()
}

// compactReturn takes units out of the newest entries.
func compactReturn(a *Algorithm, w []int64, v View, n int64) []int64 {
	c := a.compact(w)
	for i := v.z - 1; n > 0 && i >= v.y; i-- {
		back := min(n, c.cost(i))
		c.add(i, -back)
		n -= back
	}
	return c.trim()
}

// trim drops the newest entries as far as they are empty.
func (c *compact) trim() []int64 {
	w := c.w
	for w[1] > 0 && c.cost(w[1]-1) == 0 {
		p, n := c.place(w[1]-1), int64(1)
		if c.sums[p/compactBlock] == 0 {
			n = min(w[1], p%compactBlock+1)
		}
		w[1] -= n
	}
	if w[1] > 0 {
		w[2] = c.time(w[1] - 1)
	}
	return w
}
