package memory

import "sync/atomic"

// What does not fit into a record has memory of its own, and a number in the
// record: the words of the kinds that keep many, and keys that are long. Only
// the holder of the stripe's lock reads it.

// aside gives words a number.
func (m *guarded) aside(words []int64) int64 {
	if n := len(m.spare); n > 0 {
		i := m.spare[n-1]
		m.spare = m.spare[:n-1]
		m.many[i] = words
		return int64(i)
	}
	m.many = append(m.many, words)
	return int64(len(m.many) - 1)
}

// asides are the words of a record that are such numbers.
func (m *guarded) asides(w []int64) []int64 {
	h := atomic.LoadInt64(&w[tagWord])
	k := kindIn(h)
	from, to := header, header+wordsOf(k)
	if !keepsMany(k) {
		from = to
	}
	if lenIn(h) > inline {
		to++
	}
	return w[from:to]
}

func (m *guarded) freeAsides(w []int64) {
	for _, i := range m.asides(w) {
		m.many[i] = nil
		m.spare = append(m.spare, uint32(i))
	}
}

// fewNumbers are so few that it does not matter how many of them are free.
const fewNumbers = 8

// renumber counts anew where three in four numbers are free.
func (m *guarded) renumber() {
	n := len(m.many) - len(m.spare)
	if len(m.many) <= fewNumbers || n*4 > len(m.many) {
		return
	}
	old := m.many
	m.many, m.spare = make([][]int64, 0, 2*n), nil
	for i := range m.tables {
		t := m.tables[i].Load()
		if t == nil {
			continue
		}
		for w := range t.records() {
			numbers := m.asides(w)
			for j, number := range numbers {
				numbers[j] = m.aside(old[number])
			}
		}
	}
}
