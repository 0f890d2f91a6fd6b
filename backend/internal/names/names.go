// Package names says what the keys and hash fields of a store on Redis are called,
// and reads those names again. All names of one limited key share a hash tag, and
// so a slot.
package names

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/slot"
)

// Prefix begins every stored key. It may not hold braces: the library's own
// hash tag is the first in a key, whatever the caller's key holds.
type Prefix string

// DefaultPrefix is used where the caller names none.
const DefaultPrefix Prefix = "headgate:"

// Check refuses a prefix that could choose the slot.
func (p Prefix) Check() error {
	for i := 0; i < len(p); i++ {
		if c := p[i]; c <= ' ' || c > '~' || c == '{' || c == '}' {
			return &backend.InvalidError{What: "prefix", Value: string(p), Want: "printable ASCII without spaces and braces"}
		}
	}
	if len(p) > 128 {
		return &backend.InvalidError{What: "prefix", Value: string(p), Want: "at most 128 bytes"}
	}
	return nil
}

// Tag returns what stands between the braces of a stored key; see slot.Tag.
func Tag(key, sub string) string { return slot.Tag(key, sub) }

// Hash returns where a key's small states lie: one hash, with one field per policy.
func (p Prefix) Hash(tag string) string { return string(p.AppendHash(nil, tag)) }

func (p Prefix) AppendHash(b []byte, tag string) []byte {
	b = append(append(b, p...), '{')
	return append(append(b, tag...), '}')
}

// Log returns where a policy's log lies: in the hash's slot.
func (p Prefix) Log(tag string, policy *backend.Policy) string {
	return string(AppendLog(p.AppendHash(nil, tag), policy))
}

// AppendLog makes a hash's name that of a policy's log, in the same slot: as
// ":log:1m/api".
func AppendLog(b []byte, p *backend.Policy) []byte {
	b = append(append(append(b, ':'), p.Algorithm.Kind().Mark()...), ':')
	return appendCount(b, p)
}

// Lease returns where a lease lies: in the hash's slot.
func (p Prefix) Lease(tag string, id backend.LeaseID) string {
	return string(AppendLease(p.AppendHash(nil, tag), id))
}

// Leases is the field of a hash that the script keeps of all leases of its key.
const Leases = "leases"

// leaseMark stands between a hash's name and the ID of a lease. It is short, and the
// ID is not text, since there may be a million. A name of more than 44 bytes takes
// Redis 16 bytes more.
const leaseMark = ":l:"

// AppendLease makes a hash's name that of a lease: ":l:" and the ID's 16 bytes.
func AppendLease(b []byte, id backend.LeaseID) []byte {
	return append(append(b, leaseMark...), id[:]...)
}

// borrowerMark stands between a hash's name and the ID of a borrower.
const borrowerMark = ":b:"

// AppendBorrower makes a hash's name that of a borrower's record: ":b:" and the ID's 16
// bytes.
func AppendBorrower(b []byte, id backend.LeaseID) []byte {
	return append(append(b, borrowerMark...), id[:]...)
}

// AppendField names the field of a small state, such as "f1m/api", "b1h/10/api",
// "t/api", "cm15/Europe/Berlin/api", and of a shadow "t/~api".
func AppendField(b []byte, p *backend.Policy) []byte {
	if !Apart(p) { // what has a key of its own has no field, and none can be named so
		b = append(b, p.Algorithm.Kind().Mark()...)
	}
	return appendCount(b, p)
}

// appendCount names a count by what it belongs to beside its kind. Algorithms of
// another period, or of other buckets, under one policy's name have separate counts.
func appendCount(b []byte, p *backend.Policy) []byte {
	id := p.Algorithm.Identity()
	if id.Period > 0 {
		b = appendPeriod(b, id.Period)
	}
	if id.Buckets > 0 {
		b = strconv.AppendInt(append(b, '/'), id.Buckets, 10)
	}
	b = append(append(b, id.Label...), '/')
	if p.Shadow {
		b = append(b, shadowMark)
	}
	return append(b, p.Name...)
}

// shadowMark stands before the name of a shadow policy, whose count is its own. No
// policy's name can have it.
const shadowMark = '~'

// units are the lengths of time in microseconds, the longest first.
var units = [...]struct {
	us   int64
	name string
}{{86400e6, "d"}, {3600e6, "h"}, {60e6, "m"}, {1e6, "s"}, {1e3, "ms"}, {1, "us"}}

// appendPeriod writes microseconds as a whole number of the longest unit.
func appendPeriod(b []byte, us int64) []byte {
	for _, u := range units {
		if us%u.us == 0 {
			return append(strconv.AppendInt(b, us/u.us, 10), u.name...)
		}
	}
	return b
}

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
	if id, lease := LeaseOf(rest); lease {
		k.Lease = id
	}
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

// Field reads the name of a hash's field: the inverse of AppendField.
func Field(field string) (backend.Policy, bool) {
	return named(field, "", false, AppendField)
}

// LogOf reads what follows the tag in the name of a log: the inverse of
// AppendLog.
func LogOf(rest string) (backend.Policy, bool) {
	return named(strings.TrimPrefix(rest, ":"), ":", true, AppendLog)
}

// LeaseOf reads what follows the tag in the name of a lease: the inverse of AppendLease.
func LeaseOf(rest string) (id backend.LeaseID, ok bool) {
	b, ok := strings.CutPrefix(rest, leaseMark)
	return id, ok && copy(id[:], b) == len(id) && len(b) == len(id)
}

// Beside reports whether what follows the tag in a name is that of a lease, of a
// borrower, or of what a log gave back.
func Beside(rest string) bool {
	if strings.HasPrefix(rest, leaseMark) || strings.HasPrefix(rest, borrowerMark) {
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
	for _, k := range append(rule.Kinds(), rule.KindInFlight) {
		rest, ok := strings.CutPrefix(s, k.Mark()+delimiter)
		if !ok || apart != (k.Storage() == rule.StoredApart) {
			continue
		}
		p, ok := count(k, rest)
		return p, ok && string(write(nil, &p)) == delimiter+s
	}
	return backend.Policy{}, false
}

// count reads "period/buckets/name" or "label/name", the inverse of appendCount.
// What this release would not write is refused by the caller, who writes it again.
func count(k rule.Kind, s string) (p backend.Policy, ok bool) {
	end := max(strings.LastIndexByte(s, '/'), 0)
	period, buckets, _ := strings.Cut(s[:end], "/")
	id := rule.Identity{Kind: k, Period: lengthOf(period).Microseconds()}
	if id.Period == 0 {
		id.Label = s[:end]
	}
	id.Buckets, _ = strconv.ParseInt(buckets, 10, 64)
	p = backend.Policy{OnFailure: backend.FailClosed, Algorithm: rule.Widest(id)}
	p.Name, p.Shadow = strings.CutPrefix(strings.TrimPrefix(s[end:], "/"), string(shadowMark))
	return p, backend.CheckPolicies([]backend.Policy{p}) == nil
}

// lengthOf reads a period as appendPeriod writes it; 0 for anything else.
func lengthOf(s string) time.Duration {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, _ := strconv.ParseInt(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour
	}
	d, _ := time.ParseDuration(s)
	return d
}

// Apart reports whether the policy's counts have a Redis key of their own.
func Apart(p *backend.Policy) bool { return p.Algorithm.Kind().Storage() == rule.StoredApart }
