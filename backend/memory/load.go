package memory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
	"unique"

	"github.com/headgate-go/headgate/backend"
	codec "github.com/headgate-go/headgate/backend/internal/record"
)

// SnapshotError is the error of a snapshot that a store does not begin with. The store has
// none of its counts.
type SnapshotError struct {
	File  string // its name; "" of a reader
	Fault Fault
	Err   error // the cause, if there is one
}

// Fault is why a store does not begin with a snapshot.
type Fault uint8

// The faults of a snapshot.
const (
	Unreadable Fault = iota + 1 // the system gave no file or not all of it; see Err
	Foreign                     // it is no snapshot of a memory store
	Cut                         // its end is missing
	Garbled                     // its bytes were changed
	Later                       // a later release wrote it
	Ahead                       // it was written more than a day after now: one of both clocks is wrong
	InUse                       // another store has the file
)

var faults = [...]string{"none", "can't be read", "is no snapshot of a memory store", "was cut", "is garbled", "is of a later release", "was written after now", "is another store's"}

// String returns the fault as a predicate, such as "was cut".
func (f Fault) String() string {
	if int(f) >= len(faults) {
		return "unknown"
	}
	return faults[f]
}

// Error names the file and the fault.
func (e *SnapshotError) Error() string {
	text := fmt.Sprintf("headgate: file of counts %q %v", e.File, e.Fault)
	if e.File == "" {
		text = fmt.Sprintf("headgate: snapshot %v", e.Fault)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *SnapshotError) Unwrap() error { return e.Err }

// mostAhead is how far a snapshot's clock may be ahead of this process's.
const mostAhead = 24 * time.Hour

// Load makes the counts of a snapshot those of the store, which must have had no request yet. It
// reads r to its end. After an error, which is a *[SnapshotError] if it is the snapshot's, the
// store is as it was.
//
// The time between has passed by the wall clock. Where that shows an earlier instant than the
// snapshot has, the store's clock goes on from the snapshot's. So no count, lease or loan stays
// for longer than it had left.
func (s *Store) Load(r io.Reader) error {
	if err := s.usable(); err != nil {
		return err
	}
	l := newLoader(s, r)
	if err := l.load(); err != nil {
		return err
	}
	return l.install(s)
}

// loader reads a snapshot into a store of its own, of which nothing is used after an error.
type loader struct {
	r       io.Reader
	into    *Store
	part    codec.Reader
	text    bytes.Buffer
	classes []*class // by index; the end has their names
	parts   int64
	saved   int64
	wall    int64 // the wall clock's instant of the snapshot
	last    int64
	count   codec.Count
}

func newLoader(s *Store, r io.Reader) *loader {
	into := &Store{clock: s.clock, maxKeys: s.maxKeys, classes: newClasses()}
	into.stripes = newStripes(s.maxKeys, into.classes)
	return &loader{r: r, into: into, classes: *into.classes.list.Load()}
}

func fault(f Fault, err error) error { return &SnapshotError{Fault: f, Err: err} }

func (l *loader) load() error {
	line := make([]byte, len(magic))
	n, err := io.ReadFull(l.r, line)
	switch {
	case n < len(magic) && magic[:n] == string(line[:n]):
		return l.short(err)
	case string(line) != magic:
		return fault(Foreign, nil)
	}
	for {
		sort, err := l.next()
		switch {
		case err != nil:
			return err
		case (l.parts == 1) != (sort == headPart):
			return fault(Garbled, nil)
		case sort == headPart:
			err = l.head()
		case sort == storePart:
			err = l.kept(nil)
		case sort == overflowPart:
			err = l.kept(&l.into.overflow)
		case sort == endPart:
			return l.end()
		default:
			return fault(Garbled, nil)
		}
		if err != nil {
			return err
		}
	}
}

// short is the error of a snapshot that ends too early, or of its reader.
func (l *loader) short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fault(Cut, nil)
	}
	return fault(Unreadable, err)
}

// next reads the next part as far as to its sort. It allocates no more than was read, whatever
// the length says.
func (l *loader) next() (sort int64, err error) {
	var b [lengthBytes]byte
	if _, err := io.ReadFull(l.r, b[:]); err != nil {
		return 0, l.short(err)
	}
	length := binary.LittleEndian.Uint64(b[:])
	//mutant:length-complemented
	if length != ^binary.LittleEndian.Uint64(b[lengthBytes/2:]) {
		return 0, fault(Garbled, nil)
	}
	l.text.Reset()
	if _, err := io.CopyN(&l.text, l.r, int64(length)); err != nil {
		return 0, l.short(err)
	}
	if err := l.part.Open(l.text.Bytes()); err != nil {
		if later := (*codec.LaterError)(nil); errors.As(err, &later) {
			return 0, fault(Later, err)
		}
		return 0, fault(Garbled, nil)
	}
	sort, place, saved := l.part.Number(), l.part.Number(), l.part.Number()
	if l.parts == 0 {
		l.saved = saved
	}
	//mutant:parts-of-one-snapshot
	if place != l.parts || saved != l.saved {
		return 0, fault(Garbled, nil)
	}
	l.parts++
	return sort, nil
}

// done returns an error if the part was not read to its end.
func (l *loader) done() error {
	if l.part.Err() != nil || l.part.More() {
		return fault(Garbled, nil)
	}
	return nil
}

func (l *loader) head() error {
	l.wall = l.part.Number()
	secrets := l.part.Text()
	if len(secrets) != secretBytes {
		return fault(Garbled, nil)
	}
	l.into.secrets = secretsOf([]byte(secrets))
	now := l.into.clock.wall()
	//mutant:clock-days-ahead
	if ahead := time.Duration(l.wall-now) * time.Microsecond; l.wall > now && ahead > mostAhead {
		return fault(Ahead, fmt.Errorf("at %v, and now is %v", time.UnixMicro(l.wall).UTC(), time.UnixMicro(now).UTC()))
	}
	return l.done()
}

// kept reads what a part has of the store. The stripe is that of each hash, if it is nil.
func (l *loader) kept(at *stripe) error {
	stripe := func(h uint64) *stripe {
		if at != nil {
			return at
		}
		return &l.into.stripes[l.into.stripeAt(hash(h))]
	}
	from, to, counts := l.part.Number(), l.part.Number(), l.part.Number()
	if counts < 0 || counts > int64(l.text.Len()) || from < 0 || from >= to || to > places {
		return fault(Garbled, nil)
	}
	if at == nil {
		l.grow(int(from), int(to), int(counts))
	}
	for ; counts > 0 && l.part.More(); counts-- {
		if l.part.Count(&l.count); l.part.Err() == nil {
			l.insert(stripe(l.count.ID))
		}
	}
	l.each(func() {
		var e codec.Lease
		l.part.Lease(&e)
		stripe(e.ID[0]).mu.leases.open.put(e.ID, leaseOf(&e, l.class))
	})
	l.each(func() {
		var e codec.Settlement
		l.part.Settlement(&e)
		stripe(e.ID[0]).mu.leases.settled.put(e.ID, settlement{e.Attempt, e.Until})
	})
	l.each(func() {
		var e codec.Borrower
		l.part.Borrower(&e)
		stripe(e.ID[0]).mu.borrowers.put(e.ID, borrower{e})
	})
	return l.done()
}

// each reads a number, and so many entries.
func (l *loader) each(read func()) {
	for n := l.part.Number(); n > 0 && l.part.More(); n-- {
		read()
	}
}

// grow makes room for the counts of some places at once, which are spread evenly.
func (l *loader) grow(from, to, counts int) {
	n := len(l.into.stripes)
	first, last := from*n/places, (to-1)*n/places
	for i := first; i <= last; i++ {
		l.into.stripes[i].mu.records.grow(counts / (last - first + 1))
	}
}

// insert makes the record of the count that was read.
func (l *loader) insert(st *stripe) {
	n, mu := &l.count, &st.mu
	h, class := max(hash(n.ID), 1), l.class(n.Class)
	mu.records.grow(1)
	index := n.Class
	if st.classes == nil {
		index = 0
	} else {
		class.kept.Add(1)
		l.into.kept.Add(1)
	}
	r := mu.records.insert(h, index)
	r.until = n.Until
	st.idleFrom.Store(min(st.idleFrom.Load(), n.Until))
	if n.Many {
		if mu.many == nil {
			mu.many = map[hash][]int64{}
		}
		mu.many[h] = append([]int64(nil), n.Words...)
	} else {
		copy(r.few[:], n.Words)
	}
	if n.Lent != nil {
		st.setLent(h, n.Lent)
	}
}

// leaseOf returns the lease of which e is the record.
func leaseOf(e *codec.Lease, class func(index uint16) *class) *lease {
	got := &lease{end: e.End, key: hash(e.Key), length: e.Length, late: e.Late, reset: e.Reset, charges: make([]charge, len(e.Charges))}
	for i := range e.Charges {
		c := &e.Charges[i]
		got.charges[i] = charge{id: identity(c.ID), units: c.Units, class: class(c.Class), spared: c.Spared, Charge: c.Charge, algorithm: unique.Make(c.Algorithm)}
		if c.Shared {
			got.charges[i].shared = got.charges[i].class
		}
	}
	return got
}

// class returns the class of an index. The end of the snapshot has its name.
func (l *loader) class(index uint16) *class {
	for len(l.classes) <= int(index) {
		l.classes = append(l.classes, &class{index: uint16(len(l.classes))})
	}
	return l.classes[index]
}

func (l *loader) end() error {
	l.last = l.part.Number()
	charged := l.part.Number()
	for i := range l.into.stripes {
		l.into.stripes[i].mu.charged = charged
	}
	l.into.overflow.mu.charged = charged
	var names []string
	l.each(func() { names = append(names, l.part.Text()) })
	if err := l.done(); err != nil {
		return err
	}
	//mutant:classes-have-names
	if len(names) < len(l.classes) || names[0] != "" || len(names) > maxClasses+1 {
		return fault(Garbled, nil)
	}
	cs := l.into.classes
	for i, name := range names[1:] {
		c := l.class(uint16(i + 1))
		c.name, c.overflow = name, l.into.secrets[ofPolicies].overflowOf(name)
		cs.named.Store(name, c)
	}
	cs.list.Store(&l.classes)
	//mutant:nothing-behind-the-end
	if n, err := l.r.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return fault(Garbled, nil)
	}
	return nil
}

// errInUse is the cause of a Load into a store that has had a request.
var errInUse = &backend.InvalidError{What: "store", Value: "in use", Want: "one that has had no request, for Load"}

// install moves what was read into a store, if it has had no request.
func (l *loader) install(s *Store) error {
	for i := range s.stripes {
		mu := &s.stripes[i].mu
		mu.Lock()
		defer mu.Unlock()
		//mutant:load-comes-first
		if mu.calls != uint(i) || mu.records.live > 0 {
			return errInUse
		}
	}
	s.overflow.mu.Lock()
	defer s.overflow.mu.Unlock()
	s.secrets, s.classes = l.into.secrets, l.into.classes
	s.clock.startAt(l.last)
	for i := range s.stripes {
		s.stripes[i].take(&l.into.stripes[i], s.classes)
	}
	s.overflow.take(&l.into.overflow, nil)
	s.kept.Store(l.into.kept.Load())
	return nil
}

// take moves what another stripe has into this one. Both are locked, or no one else has them.
func (st *stripe) take(from *stripe, all *classes) {
	st.classes = all
	st.idleFrom.Store(from.idleFrom.Load())
	mu := &st.mu
	mu.records, mu.many, mu.charged, mu.leases, mu.lent, mu.borrowers = from.mu.records, from.mu.many, from.mu.charged, from.mu.leases, from.mu.lent, from.mu.borrowers
}
