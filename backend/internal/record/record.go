// Package record is the codec of what a store in Go keeps of a key: counts, leases,
// settlements and borrowers. A store writes them to a file, or to a row of a database.
//
// A text is a version, any number of entries in an order of its owner's choice, and a
// checksum:
//
//	b := record.Begin(nil)
//	b = record.AppendCount(b, &count)
//	b = record.Seal(b, 0)
//
//	r, err := record.Open(b)
//	for r.More() {
//		r.Count(&count)
//	}
//	err = r.Err()
//
// Instants are µs of the Unix epoch by the owner's clock. An entry of a count or of a charge has
// an ID that the owner chooses: the codec writes 64 bits, whatever they are. Numbers are
// varints, signed ones in zigzag, and what is random is written as it is.
package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/headgate-go/headgate/algo/rule"
)

// Version is that of the texts that are written. Texts of earlier versions are read.
const Version = 1

// ErrGarbled is the error of a text that was cut or changed, or that no store wrote.
var ErrGarbled = errors.New("cut or garbled")

// LaterError is the error of a text whose version is a later one.
type LaterError struct{ Version int }

func (e *LaterError) Error() string {
	return fmt.Sprintf("version %d, and this release reads up to %d", e.Version, Version)
}

// Count is what is kept of one policy of a key.
type Count struct {
	ID    uint64
	Until int64      // the count says no more than none from then on; 0: it was found so once
	Many  bool       // its kind has as many words as it needs, and else a record's few
	Words []int64    // the algorithm's
	Class uint16     // in the owner's list
	Lent  *rule.Lent // nil: nothing is lent of it
}

// Lease is an open one: it was reserved and not settled.
type Lease struct {
	ID      [2]uint64
	Key     uint64
	End     int64
	Length  uint32 // ms: for how long it is kept after its end
	Late    bool
	Reset   bool // its key was reset since
	Charges []Charge
}

// Charge is what a lease keeps of one policy.
type Charge struct {
	ID     uint64
	Units  int64  // the estimate
	Class  uint16 // in the owner's list
	Shared bool   // a count was charged that keys of the class share
	Spared bool   // a shadow without room, which was charged nothing
	rule.Charge
	Algorithm rule.Algorithm
}

// Settlement stands for a lease that is settled, or may not be reserved any more.
type Settlement struct {
	ID      [2]uint64
	Attempt [2]int64 // that settled it; zero: a tombstone
	Until   int64
}

// Borrower is what is kept of a borrower.
type Borrower struct {
	ID      [2]uint64
	Seq     uint32 // of its last Borrow
	Loan    uint32 // the Borrow that lent what it holds; 0: nothing
	Counted int64  // when it was counted last
	Until   int64
	Of      []LentTo // per policy
}

// LentTo is what a borrower holds of one count.
type LentTo struct {
	End, Units int64
	Epoch      [8]byte
}

// Begin appends the version of a text.
func Begin(b []byte) []byte { return append(b, Version) }

var polynomial = crc32.MakeTable(crc32.Castagnoli)

const checksum = 4 // bytes

// Seal appends the checksum of the text that begins at an index of b.
func Seal(b []byte, from int) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[from:], polynomial))
}

// AppendNumber appends a number of the owner's, such as how many entries follow.
func AppendNumber(b []byte, n int64) []byte { return binary.AppendVarint(b, n) }

// AppendText appends a text of the owner's, such as a name.
func AppendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// The flags of an entry, in its first byte. A bit that no release has set is garbled.
const (
	many   = 1 << iota // of a Count
	lent               // of a Count
	shared             // of a Charge
	spared             // of a Charge
	late               // of a Lease
	reset              // of a Lease
)

func flag(set bool, bit byte) byte {
	if set {
		return bit
	}
	return 0
}

// AppendCount appends a count. It keeps the words without the zeros behind the last other one
// if they are a record's few.
func AppendCount(b []byte, c *Count) []byte {
	b = append(b, flag(c.Many, many)|flag(c.Lent != nil, lent))
	b = binary.LittleEndian.AppendUint64(b, c.ID)
	b = binary.AppendVarint(b, c.Until)
	b = binary.AppendUvarint(b, uint64(c.Class))
	words := c.Words
	for !c.Many && len(words) > 0 && words[len(words)-1] == 0 {
		words = words[:len(words)-1]
	}
	b = binary.AppendUvarint(b, uint64(len(words)))
	for _, w := range words {
		b = binary.AppendVarint(b, w)
	}
	if c.Lent != nil {
		b = appendLent(b, c.Lent)
	}
	return b
}

func appendLent(b []byte, l *rule.Lent) []byte {
	b = append(b, l.Epoch[:]...)
	for _, n := range [...]int64{l.From, l.Cur, l.Prev, l.Most, l.MostUntil} {
		b = binary.AppendVarint(b, n)
	}
	b = binary.AppendUvarint(b, uint64(len(l.Ends)))
	for _, e := range l.Ends {
		b = binary.AppendVarint(b, e.End)
		b = binary.AppendVarint(b, e.Due)
		b = binary.AppendVarint(b, e.Units)
	}
	return b
}

func appendID(b []byte, id [2]uint64) []byte {
	b = binary.LittleEndian.AppendUint64(b, id[0])
	return binary.LittleEndian.AppendUint64(b, id[1])
}

// AppendLease appends an open lease.
func AppendLease(b []byte, l *Lease) []byte {
	b = append(b, flag(l.Late, late)|flag(l.Reset, reset))
	b = appendID(b, l.ID)
	b = binary.LittleEndian.AppendUint64(b, l.Key)
	b = binary.AppendVarint(b, l.End)
	b = binary.AppendUvarint(b, uint64(l.Length))
	b = binary.AppendUvarint(b, uint64(len(l.Charges)))
	for i := range l.Charges {
		b = appendCharge(b, &l.Charges[i])
	}
	return b
}

func appendCharge(b []byte, c *Charge) []byte {
	b = append(b, flag(c.Shared, shared)|flag(c.Spared, spared))
	b = binary.LittleEndian.AppendUint64(b, c.ID)
	p := c.Algorithm.Parts()
	b = append(b, byte(p.Kind))
	for _, n := range [...]int64{c.Units, int64(c.Class), c.At, c.Total, p.Limit.Events, int64(p.Limit.Period), p.Max, p.Own, int64(p.Offset)} {
		b = binary.AppendVarint(b, n)
	}
	return AppendText(b, p.Label)
}

// AppendSettlement appends a settlement or a tombstone.
func AppendSettlement(b []byte, s *Settlement) []byte {
	b = append(b, 0)
	b = appendID(b, s.ID)
	b = appendID(b, [2]uint64{uint64(s.Attempt[0]), uint64(s.Attempt[1])})
	return binary.AppendVarint(b, s.Until)
}

// AppendBorrower appends a borrower.
func AppendBorrower(b []byte, w *Borrower) []byte {
	b = append(b, 0)
	b = appendID(b, w.ID)
	for _, n := range [...]int64{int64(w.Seq), int64(w.Loan), w.Counted, w.Until} {
		b = binary.AppendVarint(b, n)
	}
	b = binary.AppendUvarint(b, uint64(len(w.Of)))
	for _, of := range w.Of {
		b = append(b, of.Epoch[:]...)
		b = binary.AppendVarint(b, of.End)
		b = binary.AppendVarint(b, of.Units)
	}
	return b
}
