package slot

import (
	"crypto/sha256"
	"encoding/hex"
)

// mark begins every tag that is not a key in clear: hashed keys and sub-keys.
// A key that holds it is hashed, so no key can look like another's tag.
const mark = '~'

// longest is how many bytes a key may have to stand in clear in its tag.
const longest = 64

// hashed is how many bytes of a key's SHA-256 stand for it.
const hashed = 16

// Tag returns what stands between the braces of a stored key. That is the key itself
// where it is short printable ASCII without braces and mark, else 128 bits of
// its SHA-256. A sub-key's tag is marked, the key's tag, and its name, which
// holds neither braces nor mark. No two pairs of key and name share a tag.
// Those of keys in clear hold no mark, of hashed ones one, of their sub-keys
// two and three, and the last divides key from name.
//
// The name stands at the end, because there it can lead the tag to any slot
// that is wanted; see Salt.
func Tag(key, sub string) string {
	if !clear(key) {
		sum := sha256.Sum256([]byte(key))
		key = string(mark) + hex.EncodeToString(sum[:hashed])
	}
	if sub != "" {
		return string(mark) + key + string(mark) + sub
	}
	return key
}

func clear(key string) bool {
	if len(key) > longest {
		return false
	}
	for i := 0; i < len(key); i++ {
		//mutant:salt-mark
		if c := key[i]; c <= ' ' || c >= mark || c == '{' || c == '}' {
			return false
		}
	}
	return true
}
