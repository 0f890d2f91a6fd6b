package parts

import (
	"fmt"
	"slices"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
)

// Flat returns the keys of the parts of a headgate.First one after the other, and which of them
// begin a part. With more than backend.MaxKeys keys it returns the list and an error: an And may
// contain itself.
func Flat(list []headgate.Part) (keys []headgate.Part, begins []bool, err error) {
	var add func(p headgate.Part)
	add = func(p headgate.Part) {
		//mutant:too-many-keys-of-first
		if len(keys) == backend.MaxKeys {
			err = &RequestError{"keys", fmt.Sprintf("are more than %d", backend.MaxKeys)}
		}
		//mutant:endless-parts
		if err != nil {
			return
		}
		and := p.And
		p.And = nil
		keys, begins = append(keys, p), append(begins, false)
		for _, q := range and {
			add(q)
		}
	}
	for _, p := range list {
		at := len(begins)
		if add(p); err != nil {
			return list, nil, err
		}
		begins[at] = true
	}
	return keys, begins, nil
}

// Without returns the keys and begins without the i-th key.
func Without(keys []headgate.Part, begins []bool, i int) ([]headgate.Part, []bool) {
	//mutant:next-key-begins-its-part
	if begins[i] && i+1 < len(begins) {
		begins[i+1] = true
	}
	return slices.Delete(keys, i, i+1), slices.Delete(begins, i, i+1)
}

// Nested is the reverse of Flat. Its parts share the list of keys.
func Nested(keys []headgate.Part, begins []bool) (list []headgate.Part) {
	for i := range keys {
		if from, to := Part(begins, i); i == from {
			p := keys[i]
			p.And = keys[i+1 : to]
			list = append(list, p)
		}
	}
	return list
}

// Part returns where the part of a key begins, and where the next one would.
func Part(begins []bool, at int) (from, to int) {
	for from = at; !begins[from]; from-- {
	}
	for to = at + 1; to < len(begins) && !begins[to]; to++ {
	}
	return from, to
}

// PartAt returns where the i-th part begins, and where the next one would.
func PartAt(begins []bool, i int) (from, to int) {
	for from = range begins {
		if begins[from] {
			i--
		}
		if i < 0 {
			break
		}
	}
	return Part(begins, from)
}

// ReadyFirst checks the keys as Ready does. A count may be in several parts. A part that costs
// nothing stays, since it passes if those before it are denied.
func ReadyFirst(keys []headgate.Part, begins []bool) ([]headgate.Part, error) {
	for from := 0; from < len(keys); {
		_, to := Part(begins, from)
		if _, err := Ready(keys[from:to], true); err != nil {
			return nil, err
		}
		from = to
	}
	return keys, nil
}
