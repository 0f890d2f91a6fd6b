package advise

import (
	"cmp"
	"slices"
)

// search finds the limit of one rule.
//
// A key whose peak is at most a limit has no denial by it, and each other key has at least one. So
// the limit is at least the peak after as many keys as may be denied. Only the keys before
// that one are decided again.
type search struct {
	calls  *calls
	decide decide
	most   int64 // the greatest limit of the rule
	target Target
	hot    []peak // from the greatest on: those above least
	least  int64
	tried  int
	list   []call // scratch
}

// peak is the smallest limit that denies no call of a key; most+1 if there is none.
type peak struct {
	limit int64
	key   uint32
}

// Target is what a limit may deny: a number of keys, or of calls.
type Target struct {
	Keys, Calls int64
	ByKeys      bool
}

// newSearch decides all calls once, to find the peaks.
func newSearch(c *calls, rule decide, most int64, target Target) *search {
	s := &search{calls: c, decide: rule, most: most, target: target, least: 1}
	for key := range uint32(c.keys.Len()) {
		if c.keys.At(key).n == 0 {
			continue
		}
		s.list = c.of(key, s.list)
		denied, top := rule(s.list, most)
		if denied > 0 {
			top = most + 1
		}
		s.hot = append(s.hot, peak{top, key})
	}
	slices.SortFunc(s.hot, func(a, b peak) int {
		return cmp.Or(cmp.Compare(b.limit, a.limit), cmp.Compare(a.key, b.key))
	})
	may := target.Calls
	if target.ByKeys {
		may = target.Keys
	}
	if may < int64(len(s.hot)) {
		s.least = max(1, s.hot[may].limit)
	}
	s.hot = s.hot[:s.above(s.least)]
	return s
}

// above returns how many keys have a peak above a limit.
func (s *search) above(limit int64) int {
	n, _ := slices.BinarySearchFunc(s.hot, limit, func(p peak, limit int64) int {
		if p.limit > limit {
			return -1
		}
		return 1
	})
	return n
}

// greatest returns the smallest limit that denies nothing, at least the least one.
func (s *search) greatest() int64 {
	if len(s.hot) == 0 {
		return s.least
	}
	return s.hot[0].limit
}

// denied returns how many calls each of the limits denies. They are in order, the greatest first.
// A key's calls are unpacked once for all of them.
func (s *search) denied(limits ...int64) []int64 {
	s.tried += len(limits)
	all := make([]int64, len(limits))
	for _, hot := range s.hot[:s.above(limits[len(limits)-1])] {
		s.list = s.calls.of(hot.key, s.list)
		for i, limit := range limits {
			if limit < hot.limit {
				n, _ := s.decide(s.list, limit)
				all[i] += n
			}
		}
	}
	return all
}

// halving returns the smallest limit that denies no more than the target. It is for a rule and
// costs of which a larger limit never denies more calls. The result is above most if there is none.
func (s *search) halving() int64 {
	low, high := s.least, s.greatest()
	for low < high {
		middle := low + (high-low)/2
		//mutant:advise-keeps-to-target
		if s.denied(middle)[0] <= s.target.Calls {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return high
}

// perPass is the number of limits that a pass over the calls tries.
const perPass = 8

// scan returns the smallest limit such that no larger one that was tried denies more than the
// target. With costs above 1 a larger limit may deny more calls. It tries limits from the greatest
// on, in steps of 10 %, and then of 1 % from the last one that does not.
func (s *search) scan() int64 { return s.down(s.down(s.greatest(), 10), 100) }

// down tries limits from one on that keeps to the target, each less by one in so many. It returns
// the last before one that denies more.
func (s *search) down(best, parts int64) int64 {
	for best > s.least {
		var limits []int64
		for next := best; len(limits) < perPass && next > s.least; {
			next = max(s.least, next-max(1, next/parts))
			limits = append(limits, next)
		}
		for i, denied := range s.denied(limits...) {
			//mutant:advise-scan-ends
			if denied > s.target.Calls {
				return best
			}
			best = limits[i]
		}
	}
	return best
}
