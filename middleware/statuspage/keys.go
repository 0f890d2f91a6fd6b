package statuspage

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headgate-go/headgate/internal/topkeys"
)

// secret keys the hashes, so that nobody who sees the page can try which key has a hash.
var secret = sync.OnceValue(func() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return b
})

// keys returns the keys that were denied most, and those near a limit, of all stores.
func (p *Page) keys(now time.Time) (denied, near []Key) {
	var all, close []topkeys.Key
	for _, t := range p.mu.stores {
		all = append(all, t.keys.Denied.Top(shownKeys, now)...)
		close = append(close, t.keys.Near.Top(shownKeys, now)...)
	}
	return p.shown(all), p.shown(close)
}

func (p *Page) shown(all []topkeys.Key) []Key {
	slices.SortStableFunc(all, func(a, b topkeys.Key) int { return cmp.Compare(b.Count, a.Count) })
	keys := []Key{}
	for _, k := range all[:min(shownKeys, len(all))] {
		shown := Key{Count: k.Count, Excess: k.Excess}
		//mutant:keys-are-hashed
		if p.Keys {
			shown.Key = printable(k.Key)
		} else {
			shown.Hash = hashOf(k)
		}
		keys = append(keys, shown)
	}
	return keys
}

// hashOf returns a hash of a key. A long key is kept in part: its other hash stands for the rest.
func hashOf(k topkeys.Key) string {
	h := hmac.New(sha256.New, secret())
	if len(k.Key) >= topkeys.Text {
		_ = binary.Write(h, binary.LittleEndian, k.Hash)
	}
	h.Write([]byte(k.Key))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// maxShown is how many characters of a key are shown.
const maxShown = 120

// printable returns a key without what could change the text around it, such as control characters
// and marks of direction. It is cut to a length that a page has room for.
func printable(key string) string {
	quoted := strconv.Quote(key)
	runes := []rune(quoted[1 : len(quoted)-1])
	//mutant:long-keys-are-cut
	if len(runes) > maxShown {
		return string(runes[:maxShown]) + "…"
	}
	return string(runes)
}
