package algo

// rule is all that sets one kind apart from the others. Each stands in its
// kind's own file; rules lists them.
type rule struct {
	name    string
	storage Storage
	letter  byte // begins the names of its fields; see Kind.Letter
}

// rules are the kinds, each under its number.
var rules = [...]rule{
	KindFixedWindow:    fixedWindow,
	KindSlidingWindow:  slidingWindow,
	KindTokenBucket:    tokenBucket,
	KindBucketedWindow: bucketedWindow,
	KindSlidingLog:     slidingLog,
}

// Kinds returns all kinds in the order of their numbers.
func Kinds() (all []Kind) {
	for k := range rules {
		if rules[k].name != "" {
			all = append(all, Kind(k))
		}
	}
	return all
}

func (k Kind) rule() *rule {
	if int(k) >= len(rules) {
		return &rules[0]
	}
	return &rules[k]
}

// Storage says where Redis keeps what an algorithm counts, and what the script
// answers of it.
type Storage uint8

// The classes of storage. The zero Storage is that of no algorithm.
const (
	StoredWords  Storage = iota + 1 // a few words in the key's hash; the script answers with the words
	StoredPacked                    // packed in the key's hash; the script answers with what it amounts to
	StoredApart                     // under a Redis key of its own; the script answers with what it amounts to
)

// Storage returns how the kind is stored, 0 for no kind of this package.
func (k Kind) Storage() Storage { return k.rule().storage }

// Letter begins the names of the hash fields that hold the kind's counts. It is
// 0 where Storage is StoredApart.
func (k Kind) Letter() byte { return k.rule().letter }

// Wire is the kind as package lua reads it.
func (k Kind) Wire() byte { return byte(k) }
