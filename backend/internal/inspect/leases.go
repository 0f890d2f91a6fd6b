package inspect

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/redis/go-redis/v9"
)

// Leases are the open leases of a key.
type Leases map[backend.LeaseID]backend.StoredLease

// Add adds what one node has. A lease that a Reset of the key ended is not open.
func (all Leases) Add(ctx context.Context, n Node, key string) error {
	clock := redis.NewTimeCmd(ctx, "time")
	if err := n.do(ctx, clock, "+time"); err != nil {
		return err
	}
	found, err := n.leases(ctx, key)
	resets := map[string]uint64{} // by the hash's name
	for id, k := range found {
		if err != nil {
			return err
		}
		hash := n.Prefix.Hash(names.Tag(key, k.Sub))
		if _, known := resets[hash]; !known {
			if resets[hash], err = n.resets(ctx, hash); err != nil {
				return err
			}
		}
		err = all.add(ctx, n, k, id, clock.Val(), resets[hash])
	}
	return err
}

// leases returns the names of the key's leases. SCAN may name one twice.
func (n Node) leases(ctx context.Context, key string) (map[backend.LeaseID]backend.StoredKey, error) {
	found := map[backend.LeaseID]backend.StoredKey{}
	_, err := n.scan(ctx, n.Prefix.Pattern(names.Tag(key, "")), func(name string) bool {
		k, rest, ok := n.Prefix.Key(name)
		id, lease := names.LeaseOf(rest)
		if ok && lease && n.Prefix.Hash(names.Tag(key, k.Sub))+rest == name {
			found[id] = k
		}
		return true
	})
	return found, err
}

// resets returns the generation of a key's leases, as lua/leases.lua keeps it.
func (n Node) resets(ctx context.Context, hash string) (uint64, error) {
	text, err := n.text(ctx, "+hget", "hget", hash, names.Leases)
	if err != nil || len(text) != 9 {
		return 0, err
	}
	return number(text[5:9]), nil
}

// text returns a string; "" where there is none, or something else.
func (n Node) text(ctx context.Context, right string, args ...any) (string, error) {
	cmd := redis.NewStringCmd(ctx, args...)
	err := n.read(ctx, cmd, right)
	if errors.Is(cmd.Err(), redis.Nil) || redis.HasErrorPrefix(cmd.Err(), "WRONGTYPE") {
		return "", nil
	}
	return cmd.Val(), err
}

// add reads one lease: version, state, end, length, generation, then its charges.
func (all Leases) add(ctx context.Context, n Node, k backend.StoredKey, id backend.LeaseID, now time.Time, resets uint64) error {
	v, err := n.text(ctx, "+get", "get", k.Name)
	if err != nil || v == "" { // it has left
		return err
	}
	const settled = 2
	if len(v) > 1 && v[0] == 1 && v[1] == settled || len(v) > 16 && number(v[13:17]) != resets {
		return nil
	}
	l := backend.StoredLease{ID: id}
	if len(v) > 16 && v[0] == 1 {
		length := time.Duration(number(v[9:13])) * time.Millisecond
		ends := time.Duration(int64(number(v[2:9]))-now.UnixMicro()) * time.Microsecond
		if charged(&l, v[17:]) {
			l.Length, l.Ends = length, min(ends, length)
		}
	}
	all[id] = l
	return nil
}

// charged reads a lease's charges: kind, length of the name, five numbers that a settle
// needs, the cost among them, and the name. A shadow without room has none.
func charged(l *backend.StoredLease, v string) bool {
	const head, costAt, apart, spared = 47, 28, 48, 128
	for len(v) >= head && len(v) >= head+int(v[1]) {
		if v[0] >= spared {
			v = v[head+int(v[1]):]
			continue
		}
		read := names.Field
		if v[0] >= apart {
			read = names.LogOf
		}
		p, ok := read(v[head : head+int(v[1])])
		if !ok {
			return false
		}
		l.Policies = append(l.Policies, p)
		l.Costs = append(l.Costs, int64(number(v[costAt:costAt+5])))
		v = v[head+int(v[1]):]
	}
	return v == ""
}

// number reads whole numbers as struct.pack writes them, the lowest byte first.
func number(s string) (n uint64) {
	for i := len(s) - 1; i >= 0; i-- {
		n = n<<8 | uint64(s[i])
	}
	return n
}

// Sorted returns the leases by their end.
func (all Leases) Sorted() []backend.StoredLease {
	return slices.SortedFunc(maps.Values(all), func(a, b backend.StoredLease) int {
		return cmp.Or(cmp.Compare(a.Ends, b.Ends), slices.Compare(a.ID[:], b.ID[:]))
	})
}
