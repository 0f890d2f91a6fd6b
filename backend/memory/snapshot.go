package memory

import (
	"encoding/binary"
	"io"
	"slices"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	codec "github.com/headgate-go/headgate/backend/internal/record"
)

// A snapshot is all that the store keeps, as bytes. It is a line that names it, and parts. A part
// is a length and a text of package record, which has a version and a checksum. Each text
// begins with its sort, its place among the parts and the snapshot's instant, so that parts of
// two snapshots do not mix.
//
//   - The head has the wall clock's instant and the secrets.
//   - A part of the store has counts, leases, settlements and borrowers.
//   - So has the overflow, whose counts belong to classes.
//   - The end has the last instant and the names of the classes. A snapshot without it was cut.
//
// A part of the store is what it keeps of the keys of some places. It is copied with the
// stripe's lock held, and written afterwards. So all that is kept of one key is of one
// instant, and what is kept of two keys may be of two.

// magic is the line that every snapshot begins with.
const magic = "headgate: counts of a memory store\n"

// The sorts of parts.
const (
	headPart = 1 + iota
	storePart
	overflowPart
	endPart
)

// perPart is how much a part has, in records, if a stripe has more. A stripe is gone over
// once for each of its parts, so they are not smaller.
const perPart = 1 << 13

// Save writes a snapshot of the store, which [Store.Load] reads. Requests are decided meanwhile.
// The counts of a key are those of one instant; those of two keys may be of two.
//
// The snapshot has the secret by which the store hashes keys, and no key. Who has it can make
// keys that share their counts.
func (s *Store) Save(w io.Writer) error {
	if err := s.usable(); err != nil {
		return err
	}
	_, err := s.save(w)
	return err
}

// save returns for how long it held the lock of a stripe at most.
func (s *Store) save(w io.Writer) (held time.Duration, err error) {
	v := &saver{store: s, w: w}
	v.saved = s.clock.underLock(s.clock.beforeLock(), new(int64))
	_, v.err = io.WriteString(w, magic)
	v.head()
	for i := range s.stripes {
		v.stripe(i)
	}
	v.part(overflowPart, &s.overflow, 0, places)
	v.end()
	return v.held, v.err
}

// saver writes one snapshot.
type saver struct {
	store   *Store
	w       io.Writer
	err     error // the first of w; nothing is written after it
	text    []byte
	parts   int64
	saved   int64 // the snapshot's instant, by the store's clock
	last    int64 // that of its last part
	charged int64 // see stripe
	copied  copied
	held    time.Duration
}

// begin begins the text of a part.
func (v *saver) begin(sort int64) {
	v.text = codec.Begin(append(v.text[:0], make([]byte, lengthBytes)...))
	for _, n := range [...]int64{sort, v.parts, v.saved} {
		v.text = codec.AppendNumber(v.text, n)
	}
	v.parts++
}

// lengthBytes is what the length of a part takes, with its complement: a length that was changed
// would look like a snapshot that was cut.
const lengthBytes = 16

// write writes the part that was begun.
func (v *saver) write() {
	v.text = codec.Seal(v.text, lengthBytes)
	length := uint64(len(v.text) - lengthBytes)
	binary.LittleEndian.PutUint64(v.text, length)
	binary.LittleEndian.PutUint64(v.text[lengthBytes/2:], ^length)
	if v.err == nil {
		_, v.err = v.w.Write(v.text)
	}
}

func (v *saver) head() {
	v.begin(headPart)
	v.text = codec.AppendNumber(v.text, v.saved+v.store.clock.toWall(v.saved))
	v.text = codec.AppendText(v.text, string(appendSecrets(nil, &v.store.secrets)))
	v.write()
}

func (v *saver) end() {
	v.begin(endPart)
	list := *v.store.classes.list.Load()
	for _, n := range [...]int64{v.last, v.charged, int64(len(list))} {
		v.text = codec.AppendNumber(v.text, n)
	}
	for _, c := range list {
		v.text = codec.AppendText(v.text, c.name)
	}
	v.write()
}

// stripe writes the parts of a stripe.
func (v *saver) stripe(i int) {
	st, n := &v.store.stripes[i], len(v.store.stripes)
	from, to := (i*places+n-1)/n, ((i+1)*places+n-1)/n // the places of the stripe
	size := st.size()
	v.copied.counts = slices.Grow(v.copied.counts[:0], min(size, 2*perPart)) // or it grows with the lock held
	//mutant:part-is-bounded
	parts := max(1, min(size/perPart, to-from))
	for p := range parts {
		v.part(storePart, st, from+p*(to-from)/parts, from+(p+1)*(to-from)/parts)
	}
}

// size returns how much the stripe has, in records.
func (st *stripe) size() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	ls := &st.mu.leases
	n := st.mu.records.live + 2*(len(ls.open.kept)+len(ls.settled.kept)+len(st.mu.borrowers.kept))
	for _, words := range st.mu.many {
		n += len(words) / 4
	}
	return n
}

// part writes what a stripe keeps of the keys of some places.
func (v *saver) part(sort int64, st *stripe, from, to int) {
	c := &v.copied
	v.held = max(v.held, c.of(st, from, to, &v.store.clock))
	v.last, v.charged = max(v.last, c.at), max(v.charged, c.charged)
	v.begin(sort)
	for _, n := range [...]int{from, to, len(c.counts)} {
		v.text = codec.AppendNumber(v.text, int64(n))
	}
	for i := range c.counts {
		v.text = appendCount(v.text, &c.counts[i])
	}
	v.text = codec.AppendNumber(v.text, int64(len(c.leases)))
	for i := range c.leases {
		e := c.leases[i].record()
		e.ID = c.leases[i].hash
		v.text = codec.AppendLease(v.text, &e)
	}
	v.text = codec.AppendNumber(v.text, int64(len(c.settled)))
	for i := range c.settled {
		v.text = codec.AppendSettlement(v.text, &c.settled[i])
	}
	v.text = codec.AppendNumber(v.text, int64(len(c.borrowers)))
	for i := range c.borrowers {
		v.text = codec.AppendBorrower(v.text, &c.borrowers[i])
	}
	v.write()
}

// copied is what was copied of a stripe. Its slices are used for one part after the other.
type copied struct {
	at        int64 // the instant of the copy
	charged   int64 // see stripe
	counts    []count
	words     []int64 // of the counts with many
	leases    []copiedLease
	settled   []codec.Settlement
	borrowers []codec.Borrower
}

type count struct {
	slot
	class uint16
	words []int64 // nil of a record with few
	lent  *rule.Lent
}

type copiedLease struct {
	hash leaseHash
	lease
}

// of copies what a stripe keeps of the keys of some places, and returns for how long it held the
// lock. It leaves out what says no more than nothing. Charges of a lease and parts of a borrower
// are never written once they are made, so they are not copied.
func (c *copied) of(st *stripe, from, to int, by *clock) (held time.Duration) {
	*c = copied{counts: c.counts[:0], words: c.words[:0], leases: c.leases[:0], settled: c.settled[:0], borrowers: c.borrowers[:0]}
	st.mu.Lock()
	defer st.mu.Unlock()
	begin := time.Now()
	c.at, c.charged = by.underLock(by.beforeLock(), &st.mu.latest), st.mu.charged
	//mutant:part-of-its-places
	within := func(h hash) bool { return from <= h.place() && h.place() < to }
	c.records(st, within)
	for h, l := range st.mu.leases.open.kept {
		if within(hash(h[0])) && l.leaves() > c.at {
			c.leases = append(c.leases, copiedLease{h, *l})
		}
	}
	for h, s := range st.mu.leases.settled.kept {
		if within(hash(h[0])) && s.leaves() > c.at {
			c.settled = append(c.settled, codec.Settlement{ID: h, Attempt: s.attempt, Until: s.until})
		}
	}
	for h, b := range st.mu.borrowers.kept {
		if within(hash(h[0])) && b.leaves() > c.at {
			b.ID = h
			c.borrowers = append(c.borrowers, b.Borrower)
		}
	}
	return time.Since(begin)
}

// records copies records. The sum of charges of those that it leaves out counts as that of
// records that have left.
func (c *copied) records(st *stripe, within func(hash) bool) {
	t := &st.mu.records
	for i := range t.slots {
		s := &t.slots[i]
		if s.hash == 0 || !within(s.hash) {
			continue
		}
		l := st.mu.lent[s.hash]
		if s.until <= c.at && l == nil {
			//mutant:idle-charges-stay
			c.charged = max(c.charged, s.few[2])
			continue
		}
		n := count{slot: *s, class: t.class(i)}
		if words, ok := st.mu.many[s.hash]; ok {
			from := len(c.words)
			c.words = append(c.words, words...)
			n.words = c.words[from:]
		}
		if l != nil { // which remembers borrowers and denials
			own := *l
			own.Ends = slices.Clone(l.Ends) // a Borrow writes it
			n.lent = &own
		}
		c.counts = append(c.counts, n)
	}
}

func appendCount(b []byte, c *count) []byte {
	words := c.few[:]
	if c.words != nil {
		words = c.words
	}
	return codec.AppendCount(b, &codec.Count{
		ID: uint64(c.hash), Until: c.until, Many: c.words != nil, Words: words, Class: c.class, Lent: c.lent,
	})
}

// record is the lease as package record writes it.
func (l *lease) record() codec.Lease {
	e := codec.Lease{Key: uint64(l.key), End: l.end, Length: l.length, Late: l.late, Reset: l.reset, Charges: make([]codec.Charge, len(l.charges))}
	for i := range l.charges {
		c := &l.charges[i]
		e.Charges[i] = codec.Charge{
			ID: uint64(c.id), Units: c.units, Class: c.class.index, Shared: c.shared != nil, Spared: c.spared,
			Charge: c.Charge, Algorithm: c.algorithm.Value(),
		}
	}
	return e
}
