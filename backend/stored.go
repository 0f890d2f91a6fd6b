package backend

import "time"

// StoredKey is a key in Redis under which a store keeps counts.
type StoredKey struct {
	Name  string  // in Redis; that of a reservation ends with its ID, which is a secret
	Key   string  // the limited key, as the caller names it; "" where Redis has only its hash
	Sub   string  // which sub-key of a spread key; "" is the key itself
	Lease LeaseID // of a reservation, also a settled one; zero of any other key
}

// Stored is what a store on Redis keeps of a key, or of one sub-key of a spread
// key, whichever limiters counted it. Limits are not stored. So of each policy
// only the name, and of the algorithm its Identity, are those of the limiters.
// The limits are the highest that there are, but for a TokenBucket. It leaks as
// slowly as there is, so that a peek's Used is the level that was stored, for as
// long as that lasts.
//
// A Request with these, Sub and the key asks the store for the counts: Peek with
// a cost of 0, or Reset.
type Stored struct {
	Sub      string
	Policies []Policy
	Unknown  []string // names in Redis, of keys and fields, that this release does not know
}

// StoredLease is a reservation that is not settled, as a store on Redis keeps it.
type StoredLease struct {
	ID       LeaseID
	Length   time.Duration // 0: this release can't read it, and has no more than its ID
	Ends     time.Duration // until its end, by the server's clock; not above 0 once it has ended, when a settle still corrects the counts
	Policies []Policy      // those that were charged, as Stored has them
	Costs    []int64       // units, one per policy
}
