package slot

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSaltReachesEverySlot, by letters that a tag may hold.
func TestSaltReachesEverySlot(t *testing.T) {
	for _, key := range []string{"a", "user:42", "", "with{braces}", strings.Repeat("long", 100), "~", "\xff\x00"} {
		salts, names := Names(16), map[string]bool{}
		home := salts.Home(key)
		for s := range Count {
			name := salts.Name(home, s)
			require.Equal(t, s, Of(Tag(key, name)), "%q %q", key, name)
			require.NotContains(t, name, "~")
			require.Empty(t, strings.Trim(strings.TrimPrefix(name, "16"), "@ABCDEFGHIJKLMNO"))
			names[name] = true
		}
		require.Len(t, names, Count)
	}
}

// TestTagsOfSubKeys: two pairs of key and name never share a tag.
func TestTagsOfSubKeys(t *testing.T) {
	tags := map[string]string{}
	keys := []string{"a", "b", "~a", "a~", "~a~AAAA", "a~AAAA", "AAAA", "~", "", "aAAAA", "{", strings.Repeat("k", 100)}
	for _, key := range keys {
		keys = append(keys, Tag(key, ""), Tag(key, "AAAA"))
	}
	for _, key := range keys {
		for _, sub := range []string{"", "AAAA", "AAAB", "1", "a"} {
			tag, pair := Tag(key, sub), fmt.Sprintf("%q %q", key, sub)
			if was, ok := tags[tag]; ok {
				require.Equal(t, was, pair, tag)
			}
			tags[tag] = pair
		}
	}
}

func TestHomeIsOfTheWholeTag(t *testing.T) {
	for range 1000 {
		key := fmt.Sprintf("k%x", rand.Uint64())
		require.Equal(t, Of(Tag(key, "16@@@@")), Names(16).Home(key)^Of("@@@@"))
	}
}
