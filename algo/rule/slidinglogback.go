package rule

// What a SlidingLog's entries gave back stands beside the ring, which keeps the sums
// as charged. A sum that was changed in the middle would change all behind it. It
// is a Fenwick tree over the ring's places (Fenwick, "A new data structure for
// cumulative frequency tables", 1994). It sums any run of them in O(log n). A
// log that never gave back has none.

// tree returns the tree's nodes; node i, from 1, is at i-1.
func tree(w []int64) []int64 { return w[logHeader+2*logCap(w):] }

// backIn returns what the places before the given one gave back.
func backIn(w []int64, place int64) (sum int64) {
	t := tree(w)
	for ; place > 0; place &= place - 1 {
		sum += t[place-1]
	}
	return sum
}

// backAt returns what a place gave back: its node less those that it sums, which are
// one on average.
func backAt(w []int64, place int64) int64 {
	t := tree(w)
	n, from := t[place], (place+1)&place
	for i := place; i != from; i &= i - 1 {
		n -= t[i-1]
	}
	return n
}

// netOf returns the cost of the i-th entry less what it gave back.
func netOf(w []int64, i int64) int64 {
	n := w[entry(w, i)+1] - sumBefore(w, i)
	if w[logTree] == 1 {
		n -= backAt(w, slotOf(w, i))
	}
	return n
}

// addBack adds to what a place gave back.
func addBack(w []int64, place, n int64) {
	t := tree(w)[:logCap(w)]
	for i := place + 1; i <= int64(len(t)); i += i & -i {
		t[i-1] += n
	}
}

// backBefore returns what the entries from the head to before the i-th gave back.
func backBefore(w []int64, i int64) int64 {
	c, end := logCap(w), w[0]+i
	if end <= c {
		return backIn(w, end) - backIn(w, w[0])
	}
	return backIn(w, c) - backIn(w, w[0]) + backIn(w, end-c)
}

// forgive forgets what the entry gave back that was in a place before.
func forgive(w []int64, place int64) {
	if w[logTree] == 0 {
		return
	}
	//mutant:log-place-cleared
	if n := backAt(w, place); n != 0 {
		addBack(w, place, -n)
	}
}

// moveBack moves the tree of w to where its entries are in to, and leaves that of w
// as what each place gave back.
func moveBack(w, to []int64) {
	old, t := tree(w)[:logCap(w)], tree(to)[:logCap(to)]
	for i := int64(len(old)); i > 0; i-- { // a node less those that it sums
		if up := i + i&-i; up <= int64(len(old)) {
			old[up-1] -= old[i-1]
		}
	}
	for i := range w[1] {
		t[i] = old[slotOf(w, i)]
	}
	for i := int64(1); i <= int64(len(t)); i++ {
		if up := i + i&-i; up <= int64(len(t)) {
			t[up-1] += t[i-1]
		}
	}
}

// logRefund takes units out of the entry that was charged, if it counts. Then the
// newest entries leave as far as they are empty, so that the key is unused when its
// last unit has left.
func logRefund(_ *Algorithm, w []int64, v View, c Charge, n int64) []int64 {
	i := first(w, w[1], c.At-1)
	//mutant:give-back-entry
	if i < v.y || i >= v.z || w[entry(w, i)] != c.At {
		return w
	}
	if w[logTree] == 0 {
		w = moved(w, logCap(w), 1)
	}
	addBack(w, slotOf(w, i), min(n, netOf(w, i)))
	return logTrim(w)
}

// logReturn takes units out of the newest entries. No sum stands behind these, so they are changed
// themselves.
func logReturn(_ *Algorithm, w []int64, v View, n int64) []int64 {
	for n > 0 && w[1] > v.y {
		last := w[1] - 1
		net := netOf(w, last)
		//mutant:log-return-in-part
		if net > n {
			w[entry(w, last)+1] -= n
			break
		}
		n -= net
		w[1]--
	}
	return logTrim(w)
}

// logTrim drops the newest entries as far as they are empty.
func logTrim(w []int64) []int64 {
	//mutant:log-newest-empty
	for w[1] > 0 && netOf(w, w[1]-1) == 0 {
		w[1]--
	}
	return w
}
