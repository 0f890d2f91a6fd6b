package advise

import (
	"math/bits"
	"sort"
)

// A larger limit of a SlidingWindow may deny more calls: what it admits weighs on the next window.
// So all limits are tried, from the greatest on. That is fast, since the calls of a window are
// decided at once.
//
// Let before be the units that count of the window before, and calls cost 1. The n-th call of a
// window is charged if floor(before*left/period) + charged + 1 <= limit, where left is the rest of
// the window. What is left of before only falls, so the room only grows. By induction a window
// denies max(0, peak - limit) calls, where peak is the greatest floor(before*left/period) + n. The
// greatest of such lines is on their upper envelope, which few of them are part of.

// window is one window of a key's calls.
type window struct {
	n       int64 // calls
	before  int64 // calls of the window before
	peak    int64 // with all of these charged
	next    bool  // it follows the window before at once
	corners []corner
}

// corner is a call that may be the greatest for some count of the window before.
type corner struct {
	left int64 // µs of the window after it
	n    int64 // calls of the window up to it
}

// windows returns those of a key's calls, in their order.
func windows(list []call, period int64) (all []window) {
	end := int64(0)
	var w *window
	for _, c := range list {
		if c.at >= end {
			next := len(all) > 0 && c.at < end+period
			before := int64(0)
			if next {
				before = w.n
			}
			all = append(all, window{next: next, before: before})
			w, end = &all[len(all)-1], c.at-c.at%period+period
		}
		w.n++
		w.add(corner{end - c.at, w.n})
	}
	for i := range all {
		all[i].peak = all[i].peakAfter(all[i].before, period)
	}
	return all
}

// add appends a corner, and removes those that are below the line from one before to it.
func (w *window) add(c corner) {
	for {
		last := len(w.corners) - 1
		if last >= 0 && w.corners[last].left == c.left || last >= 1 && !rises(w.corners[last-1], w.corners[last], c) {
			w.corners = w.corners[:last]
			continue
		}
		w.corners = append(w.corners, c)
		return
	}
}

// rises reports whether b is above the line from a to c: it wins calls at a lower loss of time.
func rises(a, b, c corner) bool {
	hi, lo := bits.Mul64(uint64(b.n-a.n), uint64(b.left-c.left))
	thanHi, thanLo := bits.Mul64(uint64(c.n-b.n), uint64(a.left-b.left))
	return hi > thanHi || hi == thanHi && lo > thanLo
}

// peakAfter returns the peak of a window if that many units count of the window before. Over the
// corners the sum rises and then falls.
func (w *window) peakAfter(before, period int64) int64 {
	at := func(i int) (hi, lo uint64) { // of before*left + n*period
		hi, lo = bits.Mul64(uint64(before), uint64(w.corners[i].left))
		more, rest := bits.Mul64(uint64(w.corners[i].n), uint64(period))
		lo, carry := bits.Add64(lo, rest, 0)
		return hi + more + carry, lo
	}
	i := sort.Search(len(w.corners)-1, func(i int) bool {
		hi, lo := at(i)
		nextHi, nextLo := at(i + 1)
		return hi > nextHi || hi == nextHi && lo >= nextLo
	})
	hi, lo := at(i)
	peak, _ := bits.Div64(hi, lo, uint64(period))
	return int64(peak)
}

// deniedOf returns how many calls of a key a limit denies.
func deniedOf(all []window, period, limit int64) (denied int64) {
	before := int64(0)
	for i := range all {
		w := &all[i]
		if !w.next {
			before = 0
		}
		peak := w.peak
		if before != w.before {
			peak = w.peakAfter(before, period)
		}
		over := max(0, peak-limit)
		denied += over
		before = w.n - over
	}
	return denied
}

// sliding is halving for a SlidingWindow of calls that cost 1: no limit above the result denies more
// than the target.
func (s *search) sliding(period int64) int64 {
	var hot [][]window
	for limit := s.greatest() - 1; limit >= s.least; limit-- {
		s.tried++
		denied := int64(0)
		for i := range s.above(limit) {
			if i == len(hot) {
				s.list = s.calls.of(s.hot[i].key, s.list)
				hot = append(hot, windows(s.list, period))
			}
			denied += deniedOf(hot[i], period, limit)
		}
		//mutant:advise-sliding-keeps-to-target
		if denied > s.target.Calls {
			return limit + 1
		}
	}
	return s.least
}
