package wire

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/slot"
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

// Pattern matches the names of all keys whose tag has part in it, and of others:
// sub-keys' tags have a mark before the key.
func (p Prefix) Pattern(part string) string {
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

// LogOf reads what follows the tag in the name of a log: the inverse of
// appendLog.
func LogOf(rest string) (backend.Policy, bool) {
	return named(strings.TrimPrefix(rest, ":"), ":", true, appendLog)
}

// Beside reports whether what follows the tag in a name is that of a lease, or of
// what a log gave back.
func Beside(rest string) bool {
	if strings.HasPrefix(rest, leaseMark) {
		return true
	}
	log, ok := strings.CutSuffix(rest, ":back")
	if ok {
		_, ok = LogOf(log)
	}
	return ok
}

// named reads a kind's mark, a delimiter and a count. write is what wrote it.
func named(s, delimiter string, apart bool, write func([]byte, *backend.Policy) []byte) (backend.Policy, bool) {
	for _, k := range append(algo.Kinds(), algo.KindInFlight) {
		rest, ok := strings.CutPrefix(s, k.Mark()+delimiter)
		if !ok || apart != (k.Storage() == algo.StoredApart) {
			continue
		}
		p, ok := count(k, rest)
		return p, ok && string(write(nil, &p)) == delimiter+s
	}
	return backend.Policy{}, false
}

// count reads "period/buckets/name" or "calendar/name", the inverse of appendCount.
// What this release would not write is refused by the caller, who writes it again.
func count(k algo.Kind, s string) (p backend.Policy, ok bool) {
	end := max(strings.LastIndexByte(s, '/'), 0)
	period, buckets, _ := strings.Cut(s[:end], "/")
	id := algo.Identity{Kind: k, Period: lengthOf(period).Microseconds()}
	if id.Period == 0 {
		id.Calendar = s[:end]
	}
	id.Buckets, _ = strconv.ParseInt(buckets, 10, 64)
	p = backend.Policy{Name: strings.TrimPrefix(s[end:], "/"), OnFailure: backend.FailClosed, Algorithm: algo.Widest(id)}
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
