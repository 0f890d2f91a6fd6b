package memory

import "math/bits"

// table holds records by open addressing with linear probing (Knuth, The Art of
// Computer Programming 3, 6.4, algorithms L and R). A search mostly reads one place
// of memory, where a Go map reads three. It holds no pointer.
type table struct {
	slots   []slot
	classes []uint16 // of the slots; nil while all are of the first
	live    int      // slots in use
}

// slot is free where its hash is zero.
type slot struct {
	hash hash
	record
}

// record is the state that one policy keeps of one key.
type record struct {
	until int64           // idle from then on: it says no more than no record; 0: a sweep found it idle
	few   [fewWords]int64 // the algorithm's words, of a kind with few
}

const fewWords = 3

// stay keeps a record until at least an instant. Most denials write nothing, so that
// the record stays in the caches of all cores.
func (r *record) stay(at int64) {
	if at > r.until {
		r.until = at
	}
}

// fewSlots are so few that it does not matter how many of them are free.
const fewSlots = 8

// home returns the slot at which the search for a hash begins.
func (t *table) home(h hash) int {
	at, _ := bits.Mul64(uint64(h), uint64(len(t.slots)))
	return int(at)
}

// after returns the slot after another, in a circle.
func (t *table) after(i int) int {
	if i++; i < len(t.slots) {
		return i
	}
	return 0
}

// find returns a record, nil where there is none. It is valid until the next remove
// or grow.
func (t *table) find(h hash) *record {
	if i := t.at(h); i >= 0 {
		return &t.slots[i].record
	}
	return nil
}

// at returns the slot of a record, -1 where there is none.
func (t *table) at(h hash) int {
	if t.live == 0 {
		return -1
	}
	for i := t.home(h); t.slots[i].hash != 0; i = t.after(i) {
		if t.slots[i].hash == h {
			return i
		}
	}
	return -1
}

// grow makes room for n more records. At most four in five slots are in use, so that
// searches are short.
func (t *table) grow(n int) {
	if n += t.live; n*5 > len(t.slots)*4 {
		t.resize(n)
	}
}

// resize gives the table room for n records and an eighth more.
func (t *table) resize(n int) {
	old := *t
	*t = table{slots: make([]slot, n*10/7+2)}
	for i := range old.slots {
		if s := &old.slots[i]; s.hash != 0 {
			*t.insert(s.hash, old.class(i)) = s.record
		}
	}
}

// class returns the class of a slot.
func (t *table) class(slot int) uint16 {
	if t.classes == nil {
		return 0
	}
	return t.classes[slot]
}

// setClass stores the class of a slot.
func (t *table) setClass(slot int, class uint16) {
	if class != 0 && t.classes == nil {
		t.classes = make([]uint16, len(t.slots))
	}
	if t.classes != nil {
		t.classes[slot] = class
	}
}

// insert makes a record of a class that is not there. The table has room for it.
func (t *table) insert(h hash, class uint16) *record {
	i := t.home(h)
	for t.slots[i].hash != 0 {
		i = t.after(i)
	}
	t.live++
	t.slots[i].hash = h
	t.setClass(i, class)
	return &t.slots[i].record
}

// remove frees a slot, and moves back those after it that a search would miss. It
// reports whether it gave memory back, since few are left.
//
// A table with less than a quarter in use is copied to a smaller one. Many records have to
// leave before that happens again, so a removal costs little on average.
func (t *table) remove(i int) (shrunk bool) {
	n := len(t.slots)
	for j := t.after(i); t.slots[j].hash != 0; j = t.after(j) {
		//mutant:searches-go-on
		if (j-t.home(t.slots[j].hash)+n)%n >= (j-i+n)%n {
			t.slots[i] = t.slots[j]
			t.setClass(i, t.class(j))
			i = j
		}
	}
	t.slots[i] = slot{}
	t.live--
	//mutant:memory-comes-back
	if shrunk = t.live*4 < n && n > fewSlots; shrunk {
		t.resize(t.live)
	}
	return shrunk
}
