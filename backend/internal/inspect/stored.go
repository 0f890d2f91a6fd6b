package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/redis/go-redis/v9"
)

// scanned is how many keys a server looks at for one SCAN: a few milliseconds at most.
const scanned = 1000

// Keys calls yield for the stored keys on the node whose limited key begins with
// prefix, until yield returns false; then it returns false too.
func (n Node) Keys(ctx context.Context, prefix string, yield func(backend.StoredKey) bool) (bool, error) {
	return n.scan(ctx, n.Prefix.Pattern(prefix), func(name string) bool {
		k, _, ok := n.Prefix.Key(name)
		return !ok || !strings.HasPrefix(k.Key, prefix) || yield(k)
	})
}

func (n Node) scan(ctx context.Context, pattern string, yield func(name string) bool) (bool, error) {
	for cursor := uint64(0); ; {
		cmd := redis.NewScanCmd(ctx, nil, "scan", cursor, "match", pattern, "count", scanned)
		if err := n.do(ctx, cmd, "+scan"); err != nil {
			return false, err
		}
		names, next := cmd.Val()
		for _, name := range names {
			if !yield(name) {
				return false, nil
			}
		}
		if cursor = next; cursor == 0 {
			return true, nil
		}
	}
}

// Parts are what is stored of a key, by sub-key.
type Parts map[string]*backend.Stored

// Add adds what one node has of the key.
func (parts Parts) Add(ctx context.Context, n Node, key string) error {
	var hashes []backend.StoredKey
	_, err := n.scan(ctx, n.Prefix.Pattern(names.Tag(key, "")), func(name string) bool {
		k, rest, ok := n.Prefix.Key(name)
		switch hash := n.Prefix.Hash(names.Tag(key, k.Sub)); {
		case !ok || hash+rest != name:
		case rest == "":
			hashes = append(hashes, k)
		case !names.Beside(rest):
			policy, ok := names.LogOf(rest)
			parts.add(k.Sub, name, policy, ok)
		}
		return true
	})
	for i := 0; err == nil && i < len(hashes); i++ {
		err = parts.addHash(ctx, n, hashes[i])
	}
	return err
}

// addHash adds the fields of a hash.
func (parts Parts) addHash(ctx context.Context, n Node, k backend.StoredKey) error {
	cmd := redis.NewStringSliceCmd(ctx, "hkeys", k.Name)
	err := n.read(ctx, cmd, "+hkeys")
	if redis.HasErrorPrefix(cmd.Err(), "WRONGTYPE") {
		parts.add(k.Sub, k.Name, backend.Policy{}, false)
		return nil
	}
	for _, field := range cmd.Val() {
		if policy, ok := names.Field(field); field != names.Leases {
			parts.add(k.Sub, k.Name+" "+field, policy, ok)
		}
	}
	return err
}

// add adds what has this name in Redis. SCAN may name a key twice, and so may
// two nodes while a slot moves.
func (parts Parts) add(sub, name string, policy backend.Policy, known bool) {
	part := parts[sub]
	if part == nil {
		part = &backend.Stored{Sub: sub}
		parts[sub] = part
	}
	switch {
	case !known && !slices.Contains(part.Unknown, name):
		part.Unknown = append(part.Unknown, name)
	case known && !slices.Contains(part.Policies, policy):
		part.Policies = append(part.Policies, policy)
	}
}

// Sorted returns the parts in order, each with its policies in order: of a
// sub-key, of a name, of an algorithm.
func (parts Parts) Sorted() (all []backend.Stored) {
	for _, sub := range slices.Sorted(maps.Keys(parts)) {
		part := parts[sub]
		slices.SortFunc(part.Policies, func(a, b backend.Policy) int {
			return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Algorithm.String(), b.Algorithm.String()))
		})
		all = append(all, *part)
	}
	return all
}
