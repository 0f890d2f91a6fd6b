package postgres

import (
	"crypto/sha256"
	"strconv"

	"github.com/headgate-go/headgate/backend"
)

// maxRowID is the length of a key that is its row's by itself. An index entry takes some
// 2,700 bytes, and a key may have more.
const maxRowID = 255

// rowID returns the primary key of a key's row. That of a long key is how it begins and a
// hash, a byte longer than that of any other. That of a sub-key is two bytes longer.
func rowID(key, sub string) string {
	length := maxRowID + 1
	switch {
	case sub != "":
		length++
	case len(key) <= maxRowID:
		return key
	}
	// The length comes first, so that no key goes on as a sub-key.
	hash := sha256.Sum256([]byte(strconv.Itoa(len(key)) + " " + key + sub))
	id := make([]byte, length)
	copy(id, key)
	copy(id[length-len(hash):], hash[:])
	return string(id)
}

// leaseID returns the second part of the primary key of a lease's row.
func leaseID(id backend.LeaseID) string { return "l" + string(id[:]) }

// borrowerID returns that of a borrower's.
func borrowerID(id backend.LeaseID) string { return "b" + string(id[:]) }
