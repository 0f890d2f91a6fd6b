package wire

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/redis/go-redis/v9"
)

// Key reads the name of a key in Redis: the inverse of Hash and Log. rest is
// what follows the tag, "" of a hash. ok is false where the name is not
// Headgate's.
func (p Prefix) Key(name string) (k backend.StoredKey, rest string, ok bool) {
	tag, found := strings.CutPrefix(name, string(p)+"{")
	if !found {
		return k, "", false
	}
	tag, rest, found = strings.Cut(tag, "}")
	if !found {
		return k, "", false
	}
	k.Name = name
	k.Key, k.Sub, ok = slot.Parse(tag)
	return k, rest, ok
}

// pattern matches the names of all keys whose tag has part in it, and of others:
// sub-keys' tags have a mark before the key.
func (p Prefix) pattern(part string) string {
	if part == "" {
		return glob.Replace(string(p)) + "{*"
	}
	return glob.Replace(string(p)) + "{*" + glob.Replace(part) + "*"
}

var glob = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// Field reads the name of a hash's field: the inverse of appendField.
func Field(field string) (backend.Policy, bool) {
	return named(field, "", false, appendField)
}

// logOf reads what follows the tag in the name of a log: the inverse of
// appendLog.
func logOf(rest string) (backend.Policy, bool) {
	return named(strings.TrimPrefix(rest, ":"), ":", true, appendLog)
}

// named reads a kind's mark, a delimiter and a count. write is what wrote it.
func named(s, delimiter string, apart bool, write func([]byte, *backend.Policy) []byte) (backend.Policy, bool) {
	for _, k := range algo.Kinds() {
		rest, ok := strings.CutPrefix(s, k.Mark()+delimiter)
		if !ok || apart != (k.Storage() == algo.StoredApart) {
			continue
		}
		p, ok := count(k, rest)
		return p, ok && string(write(nil, &p)) == delimiter+s
	}
	return backend.Policy{}, false
}

// count reads "period/buckets/name", the inverse of appendCount. What this
// release would not write is refused by the caller, who writes it again.
func count(k algo.Kind, s string) (p backend.Policy, ok bool) {
	parts := strings.Split(s, "/")
	period, buckets := lengthOf(parts[0]), int64(0)
	if len(parts) == 3 {
		buckets, _ = strconv.ParseInt(parts[1], 10, 64)
	}
	p = backend.Policy{Name: parts[len(parts)-1], OnFailure: backend.FailClosed, Algorithm: algo.Widest(algo.Identity{Kind: k, Period: period.Microseconds(), Buckets: buckets})}
	return p, backend.CheckPolicies([]backend.Policy{p}) == nil
}

// lengthOf reads a period as appendPeriod writes it; 0 for anything else.
func lengthOf(s string) time.Duration {
	for _, u := range units {
		n, err := strconv.ParseInt(strings.TrimSuffix(s, u.name), 10, 32)
		if strings.HasSuffix(s, u.name) && err == nil {
			return time.Duration(n*u.us) * time.Microsecond
		}
	}
	return 0
}

// scanned is how many keys a server looks at for one SCAN: a few milliseconds at most.
const scanned = 1000

// Keys calls yield for the stored keys on one server whose limited key begins
// with prefix, until yield returns false; then it returns false too.
func (p Prefix) Keys(ctx context.Context, c Client, node, prefix string, yield func(backend.StoredKey) bool) (bool, error) {
	return scan(ctx, c, node, p.pattern(prefix), func(name string) bool {
		k, _, ok := p.Key(name)
		return !ok || !strings.HasPrefix(k.Key, prefix) || yield(k)
	})
}

func scan(ctx context.Context, c Client, node, pattern string, yield func(name string) bool) (bool, error) {
	for cursor := uint64(0); ; {
		cmd := redis.NewScanCmd(ctx, nil, "scan", cursor, "match", pattern, "count", scanned)
		if err := c.Process(ctx, cmd); err != nil {
			return false, forbidden(err, node, "+scan")
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

// Add adds what one server has of the key.
func (parts Parts) Add(ctx context.Context, c Client, node string, p Prefix, key string) error {
	var hashes []backend.StoredKey
	_, err := scan(ctx, c, node, p.pattern(Tag(key, "")), func(name string) bool {
		k, rest, ok := p.Key(name)
		if hash := p.Hash(Tag(key, k.Sub)); !ok || hash+rest != name {
			return true
		}
		if rest == "" {
			hashes = append(hashes, k)
			return true
		}
		policy, ok := logOf(rest)
		parts.add(k.Sub, name, policy, ok)
		return true
	})
	for _, k := range hashes {
		if err == nil {
			err = parts.addHash(ctx, c, node, k)
		}
	}
	return err
}

// addHash adds the fields of a hash.
func (parts Parts) addHash(ctx context.Context, c Client, node string, k backend.StoredKey) error {
	cmd := redis.NewStringSliceCmd(ctx, "hkeys", k.Name)
	if err := c.Process(ctx, cmd); err != nil {
		if redis.HasErrorPrefix(err, "WRONGTYPE") {
			parts.add(k.Sub, k.Name, backend.Policy{}, false)
			return nil
		}
		return forbidden(err, node, "+hkeys")
	}
	for _, field := range cmd.Val() {
		policy, ok := Field(field)
		parts.add(k.Sub, k.Name+" "+field, policy, ok)
	}
	return nil
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
