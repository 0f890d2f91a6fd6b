package record

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
)

// Reader reads the entries of a text. After an error More is false and every entry is zero.
// A Reader may read one text after the other: it keeps each algorithm that it has made.
type Reader struct {
	rest       []byte
	bad        bool
	algorithms map[rule.Parts]rule.Algorithm
}

// Open returns a Reader of a text. The error is ErrGarbled or a *LaterError.
func Open(b []byte) (*Reader, error) {
	r := &Reader{}
	return r, r.Open(b)
}

// Open makes the Reader one of another text.
func (r *Reader) Open(b []byte) error {
	r.rest, r.bad = nil, true
	if len(b) < 1+checksum {
		return ErrGarbled
	}
	text, sum := b[:len(b)-checksum], b[len(b)-checksum:]
	//mutant:record-checksum
	if crc32.Checksum(text, polynomial) != binary.LittleEndian.Uint32(sum) {
		return ErrGarbled
	}
	switch v := text[0]; {
	//mutant:record-later
	case v > Version:
		return &LaterError{int(v)}
	case v == 0:
		return ErrGarbled
	}
	r.rest, r.bad = text[1:], false
	return nil
}

// More reports whether there is another entry.
func (r *Reader) More() bool { return !r.bad && len(r.rest) > 0 }

// Err returns ErrGarbled if an entry could not be read. A text whose checksum is right has no
// such entry, unless it was read as another one than it is.
func (r *Reader) Err() error {
	if r.bad {
		return ErrGarbled
	}
	return nil
}

// Number reads a number of the owner's, 0 if there is none.
func (r *Reader) Number() int64 { return r.number() }

// Text reads a text of the owner's.
func (r *Reader) Text() string { return string(r.bytes(int(r.several()))) }

// Count reads a count. It keeps the words in the slice that c has, as far as that has room.
func (r *Reader) Count(c *Count) {
	flags := r.flags(many | lent)
	*c = Count{ID: r.fixed(), Until: r.number(), Class: uint16(r.unsigned(math.MaxUint16)), Many: flags&many != 0, Words: c.Words[:0]}
	for n := r.several(); n > 0 && !r.bad; n-- {
		c.Words = append(c.Words, r.number())
	}
	if flags&lent != 0 {
		c.Lent = r.lent()
	}
	if r.bad {
		*c = Count{}
	}
}

func (r *Reader) lent() *rule.Lent {
	l := &rule.Lent{Epoch: r.epoch(), From: r.number(), Cur: r.number(), Prev: r.number(), Most: r.number(), MostUntil: r.number()}
	for n := r.several(); n > 0 && !r.bad; n-- {
		l.Ends = append(l.Ends, rule.LentUntil{End: r.number(), Due: r.number(), Units: r.number()})
	}
	return l
}

// Lease reads an open lease.
func (r *Reader) Lease(l *Lease) {
	flags := r.flags(late | reset)
	*l = Lease{ID: r.id(), Key: r.fixed(), End: r.number(), Length: uint32(r.unsigned(math.MaxUint32)), Late: flags&late != 0, Reset: flags&reset != 0}
	for n := r.several(); n > 0 && !r.bad; n-- {
		l.Charges = append(l.Charges, r.charge())
	}
	if r.bad {
		*l = Lease{}
	}
}

func (r *Reader) charge() Charge {
	flags := r.flags(shared | spared)
	c := Charge{ID: r.fixed(), Shared: flags&shared != 0, Spared: flags&spared != 0}
	p := rule.Parts{Kind: rule.Kind(r.byte())}
	c.Units, c.Class, c.At, c.Total = r.number(), uint16(r.within(math.MaxUint16)), r.number(), r.number()
	p.Limit = rule.Limit{Events: r.number(), Period: time.Duration(r.number())}
	p.Max, p.Own, p.Offset = r.number(), r.number(), int(r.number())
	p.Label = r.Text()
	if !r.bad {
		c.Algorithm = r.algorithm(p)
	}
	return c
}

// algorithm returns the algorithm of some numbers. Many leases have the same, and a look for a
// time zone reads files.
func (r *Reader) algorithm(p rule.Parts) rule.Algorithm {
	if a, ok := r.algorithms[p]; ok {
		return a
	}
	var zone *time.Location
	if name := p.Zone(); name != "" {
		zone, _ = time.LoadLocation(name) // nil if there is none
	}
	a := p.Algorithm(zone)
	//mutant:record-algorithm
	if a.Check() != nil {
		r.bad = true
	}
	if r.algorithms == nil {
		r.algorithms = map[rule.Parts]rule.Algorithm{}
	}
	r.algorithms[p] = a
	return a
}

// Settlement reads a settlement or a tombstone.
func (r *Reader) Settlement(s *Settlement) {
	r.flags(0)
	*s = Settlement{ID: r.id()}
	attempt := r.id()
	s.Attempt, s.Until = [2]int64{int64(attempt[0]), int64(attempt[1])}, r.number()
	if r.bad {
		*s = Settlement{}
	}
}

// Borrower reads a borrower.
func (r *Reader) Borrower(w *Borrower) {
	r.flags(0)
	*w = Borrower{ID: r.id(), Seq: uint32(r.within(math.MaxUint32)), Loan: uint32(r.within(math.MaxUint32)), Counted: r.number(), Until: r.number()}
	for n := r.several(); n > 0 && !r.bad; n-- {
		w.Of = append(w.Of, LentTo{Epoch: r.epoch(), End: r.number(), Units: r.number()})
	}
	if r.bad {
		*w = Borrower{}
	}
}

// The methods below read parts of an entry. What is not there is zero.

func (r *Reader) bytes(n int) []byte {
	if r.bad || n > len(r.rest) {
		r.bad = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *Reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *Reader) flags(known byte) byte {
	f := r.byte()
	//mutant:record-flags
	if f&^known != 0 {
		r.bad = true
	}
	return f
}

func (r *Reader) fixed() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *Reader) id() [2]uint64 { return [2]uint64{r.fixed(), r.fixed()} }

func (r *Reader) epoch() (e [8]byte) {
	copy(e[:], r.bytes(len(e)))
	return e
}

func (r *Reader) number() int64 {
	n, size := binary.Varint(r.rest)
	if r.bad || size <= 0 {
		r.bad = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// within reads a number from 0 to a greatest one.
func (r *Reader) within(most int64) int64 {
	n := r.number()
	if n < 0 || n > most {
		r.bad = true
		return 0
	}
	return n
}

// several reads how many of something follow, of which each takes a byte or more.
func (r *Reader) several() uint64 { return r.unsigned(uint64(len(r.rest))) }

// unsigned reads an unsigned number up to a greatest one.
func (r *Reader) unsigned(most uint64) uint64 {
	n, size := binary.Uvarint(r.rest)
	if r.bad || size <= 0 || n > most {
		r.bad = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}
