// Package token writes and reads the text of a reservation, by which another process
// settles it.
//
// The bytes of a token: version, flags, ID, length in ms, key. Then for each policy
// its cost * 2, plus 1 for a shadow, and its name. The last 16 bytes are an HMAC-SHA256 if
// there is a key for it. Numbers are varints, and stand before texts for their lengths.
package token

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"
)

const (
	version    = 1
	unresolved = 1
	named      = 2
	shadow     = 1
	kinds      = 2 // of policies: enforced ones and shadows
	macSize    = 16
)

// MinKey is the minimum length of a Key: what HMAC needs in strict FIPS mode, and more.
const MinKey = 16

// Token is what the text of a reservation holds.
type Token struct {
	Unresolved bool // it is not known whether the store has the lease
	Named      bool // the ID is one of the caller's
	ID         [16]byte
	Length     time.Duration
	Key        string
	Policies   []Policy
}

// Policy is what the lease charged of one policy.
type Policy struct {
	Name   string
	Cost   int64
	Shadow bool
}

// Match returns for each policy of the token the index of the one of that name among n.
// Policies that have other names now are those that the token does not name, in their
// order. The token has at most n policies.
func (t *Token) Match(n int, name func(i int) string) []int {
	at, used := make([]int, len(t.Policies)), make([]bool, n)
	for i := range at {
		at[i] = -1
		for j := range n {
			if name(j) == t.Policies[i].Name && !used[j] {
				at[i], used[j] = j, true
				break
			}
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

// Text returns the token as text, signed by k.
func (t *Token) Text(k Key) string {
	b := []byte{version, 0}
	if t.Unresolved {
		b[1] |= unresolved
	}
	if t.Named {
		b[1] |= named
	}
	b = append(b, t.ID[:]...)
	b = binary.AppendUvarint(b, uint64(t.Length.Milliseconds()))
	b = appendText(b, t.Key)
	for _, p := range t.Policies {
		n := p.Cost * kinds
		if p.Shadow {
			n += shadow
		}
		b = appendText(binary.AppendUvarint(b, uint64(n)), p.Name)
	}
	return base64.RawURLEncoding.EncodeToString(k.sign(b))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// What is wanted in place of a text that is refused. Nothing of a signed text is read
// before its signature was checked, so that a forger learns no more than that it is wrong.
const (
	WantText   = "the text of a reservation, by a limiter with as many policies"
	WantSigned = "a text that Options.TokenKey of this limiter has signed: the key is another one, or the text was changed"
	WantKey    = "Options.TokenKey, with which the text was signed"
)

// Parse returns the token of a text with this number of policies. For any other text, and
// for one that k did not sign, it returns nil and what is wanted.
func Parse(text string, k Key, policies int) (t *Token, want string) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	//mutant:one-text-per-token
	if err != nil || base64.RawURLEncoding.EncodeToString(b) != text || len(b) < 18 {
		return nil, WantText
	}
	b, ok := k.verify(b)
	switch {
	case !ok || len(b) < 18:
		return nil, WantSigned
	case b[0] != version || b[1] > unresolved|named:
		return nil, WantText
	}
	t = &Token{Unresolved: b[1]&unresolved != 0, Named: b[1]&named != 0}
	p := parser{rest: b[2+copy(t.ID[:], b[2:18]):]}
	t.Length = time.Duration(p.number()) * time.Millisecond
	t.Key = p.text()
	for range policies {
		n := p.number()
		t.Policies = append(t.Policies, Policy{Name: p.text(), Cost: n / kinds, Shadow: n%kinds == shadow})
	}
	switch {
	case !p.bad && len(p.rest) == macSize && k == nil:
		return nil, WantKey
	case p.bad || len(p.rest) > 0:
		return nil, WantText
	}
	return t, ""
}

// Key authenticates tokens; nil does not.
type Key []byte

func (k Key) mac(b []byte) []byte {
	h := hmac.New(sha256.New, k)
	_, _ = h.Write(b)
	return h.Sum(nil)[:macSize]
}

// sign returns b with its MAC.
func (k Key) sign(b []byte) []byte {
	if k == nil {
		return b
	}
	return append(b, k.mac(b)...)
}

// verify returns what was signed.
func (k Key) verify(b []byte) ([]byte, bool) {
	if k == nil {
		return b, true
	}
	if len(b) < macSize {
		return nil, false
	}
	b, mac := b[:len(b)-macSize], b[len(b)-macSize:]
	//mutant:token-authentic
	return b, hmac.Equal(mac, k.mac(b))
}

// parser reads the bytes of a token. After an error all numbers and texts are zero.
type parser struct {
	rest []byte
	bad  bool
}

func (p *parser) number() int64 {
	n, size := binary.Uvarint(p.rest)
	//mutant:shortest-varint
	if size <= 0 || n > 1<<53 || size > 1 && p.rest[size-1] == 0 {
		p.bad = true
		return 0
	}
	p.rest = p.rest[size:]
	return int64(n)
}

func (p *parser) text() string {
	n := p.number()
	if n > int64(len(p.rest)) {
		p.bad = true
		return ""
	}
	s := string(p.rest[:n])
	p.rest = p.rest[n:]
	return s
}
