package advise

import (
	"encoding/binary"
	"slices"

	"github.com/headgate-go/headgate/cmd/headgate/internal/logs"
)

// call is one call of a key.
type call struct {
	at   int64 // µs of the Unix epoch
	cost int64
}

// calls keeps the calls of each key in their order. A call takes 1 to 5 bytes for the time since
// the one before. If the log has costs, it takes 1 byte or more for the cost.
type calls struct {
	keys  logs.Column[packed] // by the number of a key
	costs bool
}

// packed are the calls of one key.
type packed struct {
	bytes []byte
	last  int64
	n     int64
}

// add appends a call. Its time is not before those of the calls that were added.
func (c *calls) add(key uint32, one call) {
	for c.keys.Len() <= int(key) {
		c.keys.Add()
	}
	p := c.keys.At(key)
	p.bytes = binary.AppendUvarint(p.bytes, uint64(one.at-p.last))
	if c.costs {
		p.bytes = binary.AppendUvarint(p.bytes, uint64(one.cost))
	}
	p.last = one.at
	p.n++
}

// of returns the calls of a key in the memory of to.
func (c *calls) of(key uint32, to []call) []call {
	p := c.keys.At(key)
	to = slices.Grow(to[:0], int(p.n))[:p.n]
	at, bytes := int64(0), p.bytes
	for i := range to {
		since, n := binary.Uvarint(bytes)
		bytes = bytes[n:]
		at += int64(since)
		to[i] = call{at, 1}
		if c.costs {
			cost, n := binary.Uvarint(bytes)
			bytes = bytes[n:]
			to[i].cost = int64(cost)
		}
	}
	return to
}
