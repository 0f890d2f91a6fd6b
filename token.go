package headgate

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/shard"
)

// The bytes of a token: version, flags, ID, length in ms, key, sub-key, and for each policy
// its cost * 3, plus 1 for a shadow, 2 for one that had no room, and its name, and if the
// key is spread a hash of whose count it is; and 16 bytes of an HMAC-SHA256 if the limiter
// has a TokenKey. Numbers are varints, and stand before texts for their lengths.
//
// In version 1 the shadows had a lease of their own, and its sub-key stood after the other
// one; a cost was multiplied by 2. Of such a token the policies that are no shadows are settled.
const (
	tokenVersion    = 2
	tokenShadows    = 1 // the version whose shadows had a lease of their own
	tokenUnresolved = 1
	tokenShadow     = 1
	tokenSpared     = 2
	tokenKinds      = 3
	tokenMAC        = 16
)

// minTokenKey is what HMAC asks for in strict FIPS mode, and more.
const minTokenKey = 16

// Token returns the reservation as text, for another process that settles it with
// Resume; "" if there is nothing to settle. The text is a secret: whoever has it can
// settle. It contains the key, readable. An unresolved reservation, one that no store
// decided, has a Token only if the limiter has a TokenKey: its settlement charges the key
// that the text names, so a text that anybody can write must not stand for one.
func (r *Reservation) Token() string {
	if !r.held() || r.unresolved && r.limiter.tokens == nil { // mutant: unresolved-token-signed
		return ""
	}
	b := []byte{tokenVersion, 0}
	if r.unresolved {
		b[1] |= tokenUnresolved
	}
	b = append(b, r.id[:]...)
	b = binary.AppendUvarint(b, uint64(r.length.Milliseconds()))
	b = appendText(appendText(b, r.key), r.charged.Sub)
	for i, n := range r.costs {
		n *= tokenKinds
		switch {
		case r.spared != nil && r.spared[i]:
			n += tokenSpared
		case r.limiter.policies[i].Shadow:
			n += tokenShadow
		}
		b = appendText(binary.AppendUvarint(b, uint64(n)), r.limiter.policies[i].Name)
		if r.charged.Sub != "" {
			b = binary.AppendUvarint(b, r.countAt(i))
		}
	}
	return base64.RawURLEncoding.EncodeToString(r.limiter.tokens.sign(b))
}

// countAt returns the hash of the count that the lease charged of a policy.
func (r *Reservation) countAt(i int) uint64 {
	if r.counts != nil {
		return r.counts[i]
	}
	return countOf(&r.limiter.policies[i])
}

// countOf returns a hash of whose count a policy asks for.
func countOf(p *Policy) uint64 {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, p.Name, p.Algorithm.Identity()) // never fails
	return uint64(h.Sum32())
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Resume returns the reservation of a token that a limiter with as many policies and
// the same TokenKey made. It asks no store: whether the reservation is still held,
// its settlement tells. That corrects what was charged, also where this limiter's list has
// another order, other numbers, periods or shadows, or spreads the key otherwise. A Commit
// takes what was used in the order of this limiter. A policy that it has under another name
// is the first of those that the token does not name. Without a TokenKey, a text that
// claims to be an unresolved reservation is refused.
func (l *Limiter) Resume(token string) (*Reservation, error) {
	r, err := l.parse(token)
	if err != nil {
		return &Reservation{}, l.refused(backend.Settle, "", err)
	}
	return r, nil
}

func (l *Limiter) parse(token string) (*Reservation, error) {
	bad := &InvalidError{What: "token", Value: len(token), Want: "the text of a reservation by such a limiter"}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || l.zero() || base64.RawURLEncoding.EncodeToString(b) != token { // mutant: one-text-per-token
		return nil, bad
	}
	b, ok := l.tokens.verify(b)
	if !ok || len(b) < 18 || b[0] != tokenVersion && b[0] != tokenShadows || b[1] > tokenUnresolved {
		return nil, bad
	}
	r := &Reservation{unresolved: b[1] == tokenUnresolved, listed: len(l.policies)}
	p := tokenParser{rest: b[2+copy(r.id[:], b[2:18]):]}
	r.length = time.Duration(p.number()) * time.Millisecond
	if r.key, r.charged.Sub = p.text(), p.text(); b[0] == tokenShadows {
		p.text()
	}
	shards, ok := shard.ShardsOf(r.charged.Sub)
	policies := l.named(&p, r, b[0], shards)
	request := backend.Request{Op: backend.Extend, Lease: r.lease()}
	request.Key, request.Sub, request.Policies = r.key, r.charged.Sub, l.policies
	switch {
	case p.bad || len(p.rest) > 0 || r.unresolved && l.tokens == nil: // mutant: forged-unresolved
		return nil, bad
	case !ok, request.Check(context.Background(), l.shard.Capabilities()) != nil: // mutant: token-fields-checked
		return nil, bad
	case len(policies) == 0: // all that is left of a list of shadows
		return &Reservation{}, nil
	}
	if r.limiter = l; !slices.Equal(policies, l.policies) {
		r.limiter, err = l.With(policies...)
	}
	if err != nil && shards > 1 { // the limits are below the number of sub-keys; mutant: token-below-shards
		for i := range policies {
			policies[i].Shards = 0 // all is charged to the sub-key that was
		}
		r.limiter, err = l.With(policies...)
	}
	return r, err
}

// named reads the policies of a token into the reservation, and returns those of the
// limiter that stand for them, spread as the key was.
func (l *Limiter) named(p *tokenParser, r *Reservation, version byte, shards int) (policies []Policy) {
	names, kinds, costs := make([]string, len(l.policies)), make([]int64, len(l.policies)), make([]int64, len(l.policies))
	for i := range names {
		n, radix := p.number(), int64(tokenKinds)
		if version == tokenShadows {
			radix = 2
		}
		costs[i], kinds[i], names[i] = n/radix, n%radix, p.text()
		if r.charged.Sub != "" && version != tokenShadows {
			r.counts = append(r.counts, uint64(p.number()))
		}
	}
	for i, j := range l.match(names) {
		shadow := kinds[i] > 0
		if shadow && version == tokenShadows { // mutant: shadow-lease-of-before
			continue
		}
		policy := l.policies[j] // mutant: token-order
		policy.Shadow = shadow  // mutant: token-shadows
		if max(policy.Shards, 1) != max(shards, 1) {
			policy.Shards = shards // mutant: token-shards
		}
		policies, r.at, r.costs = append(policies, policy), append(r.at, j), append(r.costs, costs[i])
		r.spared = append(r.spared, kinds[i] == tokenSpared)
	}
	return policies
}

// match returns the index of each policy that a token names, and of those that have other
// names now, in their order.
func (l *Limiter) match(names []string) []int {
	at, used := slices.Repeat([]int{-1}, len(names)), make([]bool, len(names))
	for i, name := range names {
		j := slices.IndexFunc(l.policies, func(p Policy) bool { return p.Name == name })
		if j >= 0 && !used[j] {
			at[i], used[j] = j, true
		}
	}
	for i := range at {
		if at[i] < 0 {
			at[i] = slices.Index(used, false)
			used[at[i]] = true
		}
	}
	return at
}

// tokenKey authenticates tokens; nil does not.
type tokenKey []byte

func (k tokenKey) mac(b []byte) []byte {
	h := hmac.New(sha256.New, k)
	_, _ = h.Write(b)
	return h.Sum(nil)[:tokenMAC]
}

// sign returns b with its MAC.
func (k tokenKey) sign(b []byte) []byte {
	if k == nil {
		return b
	}
	return append(b, k.mac(b)...)
}

// verify returns what was signed.
func (k tokenKey) verify(b []byte) ([]byte, bool) {
	if k == nil {
		return b, true
	}
	if len(b) < tokenMAC {
		return nil, false
	}
	b, mac := b[:len(b)-tokenMAC], b[len(b)-tokenMAC:]
	return b, hmac.Equal(mac, k.mac(b)) // mutant: token-authentic
}

// tokenParser reads what a token holds. After an error all it reads is zero.
type tokenParser struct {
	rest []byte
	bad  bool
}

func (p *tokenParser) number() int64 {
	n, size := binary.Uvarint(p.rest)
	if size <= 0 || n > 1<<53 || size > 1 && p.rest[size-1] == 0 { // mutant: shortest-varint
		p.bad = true
		return 0
	}
	p.rest = p.rest[size:]
	return int64(n)
}

func (p *tokenParser) text() string {
	n := p.number()
	if n > int64(len(p.rest)) {
		p.bad = true
		return ""
	}
	s := string(p.rest[:n])
	p.rest = p.rest[n:]
	return s
}
