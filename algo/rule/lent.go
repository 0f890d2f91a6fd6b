package rule

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"
)

// The lengths of what a process borrows: MinBorrow to MaxBorrow.
const (
	MinBorrow = 10 * time.Millisecond
	MaxBorrow = time.Second
)

// Lent is the units of one count that processes hold in advance. They stand beside
// the words of the count, so no rule of an algorithm depends on them:
//
//   - Every decision counts them as used, and they do not age.
//   - A settle removes them, and charges what was used at its own instant.
//   - Units that are not settled are charged whole at the last instant of their
//     loan.
//
// If each call were charged at its own instant, the count would never be greater. So each
// bound of an algorithm stands.
//
// A loan stands for two terms longer than its holder uses it. So a process that is late by
// less than that still settles what it used, and no unused unit is charged.
//
// Loans that end together are one number. Ends lie on a grid, so that there are few
// of them, however many processes borrow. Instants are µs by the clock that the
// count follows.
type Lent struct {
	Epoch     [8]byte // drawn when units were first lent; a Reset ends it
	From      int64   // when the present slot of time began, in which borrowers are counted
	Cur, Prev int64   // borrowers in this slot, and in the one before
	Most      int64   // the count up to which units are lent, for a call that was denied; see Recall
	MostUntil int64
	Ends      []LentUntil
}

// LentUntil is the units of the loans that end at an instant.
type LentUntil struct {
	End   int64 // what is not settled by now is charged whole
	Due   int64 // the last of the holders stops: a unit may be used before that, not at it
	Units int64
}

// MaxTerms is for how many terms a loan stands at most: its holder uses it for one.
const MaxTerms = 3

const (
	// lentKept is for how long borrowers are remembered: longer than any loan stands.
	lentKept = (MaxTerms + 1) * int64(MaxBorrow/time.Microsecond)
	// maxBorrowers is what the script keeps in two bytes.
	maxBorrowers = 1<<16 - 1
	// recallStays is for how long units are recalled after a denial.
	recallStays = 10 * int64(time.Second/time.Microsecond)
)

// Lends reports whether units of the kind can be lent.
func (k Kind) Lends() bool { return k.rule().storage > 0 && !k.rule().leased && !k.rule().queues }

// Fold charges the words for loans that have ended by now, each at the last instant
// before its end. It returns the words, which may have moved. What ends further ahead
// than a loan can counts as absent: the clock has stepped back. A log is charged for all
// that were lent: Recorded has left room for them.
func (l *Lent) Fold(a *Algorithm, w []int64, now int64) []int64 {
	live := l.Ends[:0]
	for _, e := range l.Ends {
		switch {
		//mutant:ended-loan-charged
		case e.End <= now:
			//mutant:lent-units-do-not-age
			v, n := a.View(w, e.End-1), e.Units
			if a.rule().storage != StoredApart {
				n = a.Recorded(&v, n)
			}
			w = a.Take(w, &v, n)
		case e.End <= now+MaxTerms*MaxBorrow.Microseconds():
			live = append(live, e)
		}
	}
	l.Ends = live
	return w
}

// Sum returns the units that are lent.
func (l *Lent) Sum() (n int64) {
	if l == nil {
		return 0
	}
	for _, e := range l.Ends {
		n += e.Units
	}
	return n
}

// Idle reports whether nothing is lent, and no borrower and no recall is remembered.
func (l *Lent) Idle(now int64) bool {
	//mutant:recall-stays
	return len(l.Ends) == 0 && now >= l.From+lentKept && l.LendsTo(now) == MaxCount
}

// Count counts a borrower, unless it was counted in this slot of time already. last is
// the instant at which it was counted last.
func (l *Lent) Count(now, length, last int64) {
	switch {
	case now >= l.From+2*length || now < l.From:
		l.Prev, l.Cur, l.From = 0, 0, now-now%length
	case now >= l.From+length:
		l.Prev, l.Cur, l.From = l.Cur, 0, now-now%length
	}
	if last < l.From || last > now {
		l.Cur = min(l.Cur+1, maxBorrowers)
	}
}

// Borrowers returns how many processes borrow.
func (l *Lent) Borrowers() int64 { return max(l.Cur, l.Prev, 1) }

// Recall notes that a call of the algorithm's limit was denied, and that n units would pass if
// nothing were lent. From now on units are lent only while the count leaves room for these,
// until ten seconds after the last such call. A script writes this at a denial, so what stands
// for another five is left as it is.
func (l *Lent) Recall(a *Algorithm, now, n int64) {
	most := l.LendsTo(now)
	//mutant:recall-seldom
	if a.max-n < most || l.MostUntil < now+recallStays/2 {
		l.Most, l.MostUntil = min(most, a.max-n), now+recallStays
	}
}

// LendsTo returns the count up to which units are lent.
func (l *Lent) LendsTo(now int64) int64 {
	if now < l.MostUntil && l.MostUntil <= now+recallStays {
		return l.Most
	}
	return MaxCount
}

// Add lends units.
func (l *Lent) Add(u LentUntil) {
	i, found := slices.BinarySearchFunc(l.Ends, u.End, func(e LentUntil, end int64) int { return cmp.Compare(e.End, end) })
	if !found {
		l.Ends = slices.Insert(l.Ends, i, LentUntil{End: u.End})
	}
	l.Ends[i].Units += u.Units
	l.Ends[i].Due = max(l.Ends[i].Due, u.Due)
}

// Remove takes units back that were lent until an end, and returns when they were due.
func (l *Lent) Remove(end, n int64) (due int64) {
	for i := range l.Ends {
		if e := &l.Ends[i]; e.End == end {
			due = e.Due
			if e.Units -= n; e.Units <= 0 {
				l.Ends = append(l.Ends[:i], l.Ends[i+1:]...)
			}
			return due
		}
	}
	return end
}

// LentEnd returns when a loan that begins now ends, by a grid of an eighth to a quarter of its
// term. It also returns when its holder stops, which is two terms before. Each grid is part of
// the next finer one, so a count has few ends, whatever terms there are. closes is when the
// window ends that units are charged to; 0 is never.
func LentEnd(now, term, closes int64) LentUntil {
	//mutant:loan-outlives-its-use
	end, finest := now+MaxTerms*term, MinBorrow.Microseconds()/4
	//mutant:ends-are-few
	end -= end % (finest << (bits.Len64(uint64(term/finest)) - 3))
	u := LentUntil{End: end, Due: end - (MaxTerms-1)*term}
	//mutant:loan-ends-with-window
	if closes > 0 {
		u.End, u.Due = min(u.End, closes), min(u.Due, closes)
	}
	return u
}

// first returns when units may come back at the latest: the first holder stops and settles. If
// one has not, it is when its loan ends.
func (l *Lent) first(now int64) int64 {
	first := int64(math.MaxInt64)
	for _, e := range l.Ends {
		//mutant:late-loan-ends
		if e.Due > now {
			e.End = e.Due
		}
		first = min(first, e.End)
	}
	return first
}

// LentShare returns how many units are lent to a borrower that wants some, and keeps some
// of what it has. Beside those that it keeps, it gets at most half of a fair share of the
// room. What is new must last for an eighth of the length.
func LentShare(want, keep, room, borrowers int64, left, length int64) int64 {
	extra := min(want-keep, (room-keep)/(2*borrowers))
	if extra < 0 || keep+extra < 2 && keep == 0 || left < length/8 {
		extra = 0
	}
	return keep + extra
}

// MaxUnits is how many units of one count are lent at a time, at most, but for those that
// borrowers keep. A store has five bytes for the sum of some.
const MaxUnits int64 = 2 * MaxLimit

// Closes returns when the window ends to which a charge of the view would belong. Units
// are not lent for longer, so that none is carried over. It is 0 for a kind whose counts
// have no such window.
func (a *Algorithm) Closes(v *View) int64 {
	if r := a.rule(); r.closes != nil {
		return r.closes(a, v.words)
	}
	return 0
}

// later returns the view after n more units at a later instant.
func (a *Algorithm) later(v View, at, n int64) View {
	if a.rule().words > 0 {
		v = a.ViewOf([3]int64{v.x, v.y, v.z}, at)
	} else {
		v = a.Seen(v.Used, v.x, at)
	}
	a.Add(&v, n)
	return v
}

// resetBeside is ResetAt of a view beside which units are lent: all are charged at
// their ends.
func (a *Algorithm) resetBeside(v *View) int64 {
	w := *v
	w.Beside = nil
	for _, e := range v.Beside.Ends {
		w = a.later(w, e.End-1, e.Units)
	}
	return a.ResetAt(&w)
}

// retryBeside is RetryAt of a view beside which units are lent. It is when the first come back,
// or when so much has left that n units fit beside all that are lent. Of a kind with many words
// the script answers only when n units fit if nothing is lent.
func (a *Algorithm) retryBeside(w []int64, v *View, n int64) int64 {
	own, first, whole := *v, v.Beside.first(v.At), n+v.Beside.Sum()
	own.Beside = nil
	if a.rule().storage == StoredWords {
		if whole > a.max {
			return first
		}
		//mutant:retry-at-refill
		return min(first, a.RetryAt(w, &own, whole))
	}
	if a.Fits(&own, n) {
		return a.Sooner(v, n, 0)
	}
	return a.Sooner(v, n, a.RetryAt(w, &own, n))
}

// Sooner returns when n units may fit that would fit at an instant if nothing were lent.
// That is at the latest when the first units come back unused.
func (a *Algorithm) Sooner(v *View, n, at int64) int64 {
	if v.Beside == nil || len(v.Beside.Ends) == 0 || n > a.max {
		return at
	}
	first := v.Beside.first(v.At)
	if v.Used+n <= a.max {
		return first
	}
	//mutant:retry-at-first-end
	return min(first, at)
}
