// Package rows decides requests by what another store keeps of their keys, such as rows of a
// database. Package memory has the implementation, which its users do not see.
package rows

import "github.com/headgate-go/headgate/backend"

// Rows decide requests. The other store puts the rows that it has read, has requests decided, and
// writes the rows that they have changed. It holds a lock on the rows
// meanwhile. backend/internal/record has the texts of rows.
//
// Rows are not safe for concurrent use.
type Rows interface {
	// Begin forgets all rows. The requests to come are decided at an instant, in µs.
	Begin(now int64)
	// Latest returns when a row was written last, 0 if its text is not one.
	Latest(text []byte) int64
	// Put puts the row of a key, nil if there is none. An error says that it is no text of ours.
	Put(key Place, text []byte) error
	// Do decides a request whose rows were put, and which Request.Check has passed.
	Do(r *backend.Request, d *backend.Decision) error
	// Row returns the text of a key's row, and until when it is needed. It is nil if the requests
	// have not changed it.
	Row(key Place) (text []byte, until int64)
	Held
}

// Held are the rows of leases and borrowers. Each belongs to a key whose own row was put before,
// and whose own row is read after it, since that stays as long.
type Held interface {
	PutLease(key Place, id backend.LeaseID, text []byte) error
	// Lease returns the text of a lease's row, and until when it is needed. It is nil if there is
	// none.
	Lease(key Place, id backend.LeaseID) (text []byte, until int64)
	PutBorrower(key Place, id backend.LeaseID, text []byte) error
	Borrower(key Place, id backend.LeaseID) (text []byte, until int64)
}

// Place is a key, or one of its sub-keys.
type Place struct{ Key, Sub string }

var fresh func() Rows

// Register sets what New calls. Package memory calls it once.
func Register(f func() Rows) { fresh = f }

// New returns Rows without any row. The program must link package memory.
func New() Rows { return fresh() }
