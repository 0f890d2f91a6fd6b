package wire

import (
	"encoding/binary"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// packLease appends ID, length in ms, attempt and a number of bits. They are 1 if the lease is
// unresolved, 2 if it names actual costs, 4 if it is late, and 8 if it is named. Then it appends
// as text how long the script keeps the lease, in ms.
//
// The time is text, since the script passes it to Redis as it is, and formats no number.
func packLease(b []byte, op backend.Op, l *backend.Lease) []byte {
	b = append(b, l.ID[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(l.Length.Milliseconds()))
	b = append(b, l.Attempt[:]...)
	how := byte(0)
	if l.Unresolved {
		how = 1
	}
	if l.Actual != nil {
		how += 2
	}
	if l.Late && op.Opens() {
		how += 4
	}
	if l.Named && op.Opens() {
		how += 8
	}
	b = append(b, how, 0)
	at := len(b)
	b = strconv.AppendInt(b, stays(op, l).Milliseconds()+slack, 10)
	b[at-1] = byte(len(b) - at)
	return b
}

// stays returns for how long a lease is found, or what a Settle leaves of it.
//
// The times are those of backend/memory, which keeps leases for as long. A lease is found
// for one length after its end. A settled one stays for one length, so that the same Settle
// can be repeated. A tombstone stays for at least ten minutes: a late Reserve must find it.
// Of a late lease the script works out the time of an Extend and of a Settle itself.
func stays(op backend.Op, l *backend.Lease) time.Duration {
	switch {
	case !op.Ends():
		return backend.Stays(l.Length, l.Late)
	case l.Unresolved:
		return backend.Stays(l.Length, true)
	}
	return l.Length
}

// packLoan appends the term in µs, number, epoch, the units that are wanted and kept, and
// the cost. Then come the loans that may be held, and as text how long the script keeps
// the record. The script refuses a term of 0, and so a Borrow whose caller has left.
func packLoan(b []byte, g *Group) []byte {
	c, term := g.Calls[0], uint32(0)
	l := &c.loan
	//mutant:withdrawn-borrow
	if !g.Withdrawn {
		term = uint32(l.Term.Microseconds())
	}
	b = binary.LittleEndian.AppendUint32(b, term)
	b = binary.LittleEndian.AppendUint32(b, l.Seq)
	b = append(b, l.Epoch[:]...)
	// Units are whole numbers below 2^53, which a double holds exactly.
	b = double(double(double(b, l.Want), l.Keep), c.costs[0])
	b = append(b, 0)
	at := len(b)
	for _, h := range l.Held {
		if h.Seq > 0 {
			b[at-1]++
			b = double(binary.LittleEndian.AppendUint32(b, h.Seq), h.Used)
		}
	}
	b = append(b, 0)
	at = len(b)
	b = strconv.AppendInt(b, 2*l.Term.Milliseconds()+borrowerStays+slack, 10)
	b[at-1] = byte(len(b) - at)
	return b
}

// borrowerStays is how long a borrower's record is kept beside two terms, in
// ms, from the Borrow that sets its expiry. It is needed for half of that: the script
// sets the expiry once in this time.
const borrowerStays = 10_000

// slack is for how much longer than needed a lease is kept, in ms. The script reckons
// with its clock, and what has left counts as absent before.
const slack = 10_000
