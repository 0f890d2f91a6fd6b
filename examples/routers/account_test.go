package routers

import (
	"testing"
)

// TestAccountKey: nine spellings of one account have one key, and another account has another.
func TestAccountKey(t *testing.T) {
	want := AccountKey("josé")
	for _, name := range []string{"José", "JOSÉ", "jose\u0301", "JOSE\u0301", " josé", "josé\t", "ｊｏｓé", "ＪＯＳÉ", "Jos\u00e9"} {
		if got := AccountKey(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if AccountKey("jose") == want {
		t.Error("another account")
	}
	if got := AccountKey(" "); got != "" {
		t.Errorf("no name: %q", got)
	}
}
