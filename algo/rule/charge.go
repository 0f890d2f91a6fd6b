package rule

// Charge is what has to be kept of a charge to give back units of it later.
type Charge struct {
	At int64 // the View's At when it was charged

	// Total is of a TokenBucket the sum of all charges of the key until then, this one
	// included; else 0.
	Total int64
}

// Charged returns the Charge of the last Reserve of a view, and of the words that it
// wrote.
func (a *Algorithm) Charged(w []int64, v *View) Charge {
	c := Charge{At: v.At}
	if r := a.rule(); r.beside > 0 {
		c.Total = w[r.words]
	}
	return c
}

// GiveBack takes n units out of the count that was charged, at most as many as were
// charged. It writes the words, which may have moved: use the slice that it
// returns. What has left its window gives nothing back, and no count falls below
// zero.
//
// Afterwards stands what would stand had n units less been charged at that instant.
// Of a TokenBucket more may stand, where others took or gave back meanwhile: a level
// does not keep whose units have leaked.
func (a *Algorithm) GiveBack(w []int64, now int64, c Charge, n int64) []int64 {
	if n <= 0 {
		return w
	}
	return a.rule().back(a, w, a.View(w, now), c, n)
}

// back gives n units of a charge back.
func (r *rule) back(a *Algorithm, w []int64, v View, c Charge, n int64) []int64 {
	if r.refund != nil {
		return r.refund(a, w, v, c, n)
	}
	if r.giveBack == nil {
		return w
	}
	if rest, ok := r.giveBack(a, v.words, v.At, c, n); ok {
		r.write(w, rest)
	}
	return w
}

// Return takes n units out of what the view counts, or all if there are fewer: of windows and
// logs the newest first. Lent units are not among them. It writes the words, which may have
// moved: use the slice that it returns. The view is spent: look again.
//
// Afterwards Used is less by as much. A charge that is given back later gives back what is left
// of its window, bucket or entry.
func (a *Algorithm) Return(w []int64, v *View, n int64) []int64 {
	r := a.rule()
	//mutant:return-down-to-zero
	n = min(n, v.Used)
	switch {
	case n <= 0 || !a.Kind().Returns():
		return w
	case r.returns != nil:
		return r.returns(a, w, *v, n)
	}
	return r.back(a, w, *v, a.Charged(w, v), n)
}

// write writes the words of a kind that is stored as words.
func (r *rule) write(w []int64, to words) {
	w[0], w[1] = to.x, to.y
	if r.words > 2 {
		w[2] = to.z
	}
}

// count adds a charge to the sum of all.
func (r *rule) count(w []int64, n int64) {
	if r.beside > 0 {
		w[r.words] += n
	}
}

// MaxUsed is the most units that Used can reach: twice the greatest limit of the
// algorithm's kind. Records that come beyond it are not counted.
func (a *Algorithm) MaxUsed() int64 { return 2 * a.rule().most }

// Recorded returns how many of n units a record charges. It charges without asking
// for room, and only up to MaxUsed. Lent units of a log are charged whole at the end of their
// lease, so their room is kept from the begin.
func (a *Algorithm) Recorded(v *View, n int64) int64 {
	used := v.Used
	//mutant:lent-log-saturates
	if a.rule().storage == StoredApart {
		used = v.Counts()
	}
	//mutant:used-saturates
	return max(0, min(n, a.MaxUsed()-used))
}
