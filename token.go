package headgate

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// The bytes of a token: version, flags, ID, length in ms, key, sub-keys, and for each policy
// its cost * 2, and 1 more for a shadow, and its name; and 16 bytes of an HMAC-SHA256 where
// the limiter has a TokenKey. Numbers are varints, and stand before texts for their lengths.
const (
	tokenVersion    = 1
	tokenUnresolved = 1
	tokenMAC        = 16
)

// minTokenKey is what HMAC asks for in strict FIPS mode, and more.
const minTokenKey = 16

// Token returns the reservation as text, for another process that settles it with
// Resume; "" where there is nothing to settle. It is a secret: whoever has it can
// settle. It contains the key, readable.
func (r *Reservation) Token() string {
	if !r.held() {
		return ""
	}
	b := []byte{tokenVersion, 0}
	if r.unresolved {
		b[1] |= tokenUnresolved
	}
	b = append(b, r.id[:]...)
	b = binary.AppendUvarint(b, uint64(r.length.Milliseconds()))
	b = appendText(appendText(appendText(b, r.key), r.subs.enforced), r.subs.shadow)
	for i, n := range r.costs {
		n *= 2
		if r.limiter.policies[i].Shadow {
			n++
		}
		b = appendText(binary.AppendUvarint(b, uint64(n)), r.limiter.policies[i].Name)
	}
	return base64.RawURLEncoding.EncodeToString(r.limiter.tokens.sign(b))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Resume returns the reservation of a token that a limiter with as many policies and
// the same TokenKey made. It asks no store: whether the reservation is still held,
// its settlement tells. That corrects what was charged, also where this limiter's list has
// another order, other numbers, other shadows, or spreads the key otherwise. A Commit takes
// what was used in the order of this limiter. A policy that it has under another name is
// the first of those that the token does not name.
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
	if err != nil || l.shard == nil {
		return nil, bad
	}
	b, ok := l.tokens.verify(b)
	if !ok || len(b) < 18 || b[0] != tokenVersion {
		return nil, bad
	}
	r := &Reservation{unresolved: b[1]&tokenUnresolved != 0}
	p := tokenParser{rest: b[2+copy(r.id[:], b[2:18]):]}
	r.length = time.Duration(p.number()) * time.Millisecond
	r.key, r.subs = p.text(), subKeys{p.text(), p.text()}
	policies, names := l.Policies(), make([]string, len(l.policies))
	for i := range policies {
		n := p.number()
		r.costs, policies[i].Shadow, names[i] = append(r.costs, n/2), n%2 == 1, p.text()
	}
	r.at = l.match(names)
	for i, j := range r.at {
		shadow := policies[i].Shadow
		policies[i] = l.policies[j] // mutant: token-order
		policies[i].Shadow = shadow // mutant: token-shadows
		if r.subs == (subKeys{}) {  // mutant: token-plain-key
			policies[i].Shards = 0
		}
	}
	lasts := r.length >= backend.MinLease && r.length <= backend.MaxLease // mutant: token-lease-length
	if p.bad || !lasts || len(p.rest) > 0 || r.key == "" || r.id == (backend.LeaseID{}) {
		return nil, bad
	}
	if r.limiter = l; !slices.Equal(policies, l.policies) {
		r.limiter, err = l.With(policies...)
	}
	return r, err
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
	if size <= 0 || n > 1<<53 {
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
