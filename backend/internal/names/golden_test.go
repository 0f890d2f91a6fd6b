package names_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/lab/golden"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/stretchr/testify/require"
)

// TestGolden: the names under which every process finds what others have stored.
func TestGolden(t *testing.T) {
	var b strings.Builder
	b.WriteString("# The names of what Redis holds. They have no version: a kind whose stored format changes\n" +
		"# gets another mark.\n")
	keys(t, &b)
	counts(t, &b)
	golden.Equal(t, "names.golden", b.String())
}

// keys appends the names of keys, and what they hold but counts.
func keys(t *testing.T, b *strings.Builder) {
	prefix, id := names.DefaultPrefix, backend.LeaseID([]byte("0123456789abcdef"))
	subs := slot.SubsOf("user:42", 16)
	for _, key := range []string{"user:42", strings.Repeat("k", 64), strings.Repeat("k", 65), "two words", "{braces}", "~", "Zürich", ""} {
		fmt.Fprintf(b, "\nkey %q\n\thash %q\n", key, prefix.Hash(names.Tag(key, "")))
	}
	hash := prefix.AppendHash(nil, names.Tag("user:42", ""))
	fmt.Fprintf(b, "\nof user:42\n\tlease %q\n\tborrower %q\n", names.AppendLease(hash, id), names.AppendBorrower(hash, id))
	fmt.Fprintf(b, "\tsub-key 0 of 16 %q\n\tsub-key 15 of 16 %q\n", prefix.Hash(names.Tag("user:42", subs.Name(0))), prefix.Hash(names.Tag("user:42", subs.Name(15))))
	fmt.Fprintf(b, "\tsub-key 1 of 2 of a hashed key %q\n", prefix.Hash(names.Tag("two words", slot.SubsOf("two words", 2).Name(1))))
	fmt.Fprintf(b, "\twith another prefix %q\n\tfield of the leases %q\n", names.Prefix("").Hash("user:42"), names.Leases)
	require.True(t, names.Beside(string(names.AppendLease(nil, id))))
}

// counts appends the names of each kind's counts, in the hash or beside it.
func counts(t *testing.T, b *strings.Builder) {
	zone, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for _, a := range []algo.Algorithm{
		algo.FixedWindow(algo.PerSecond(5)), algo.FixedWindow(algo.Per(5, 1500*time.Microsecond)), algo.FixedWindow(algo.Per(5, 36*time.Hour)),
		algo.SlidingWindow(algo.PerMinute(5)), algo.BucketedWindow(algo.PerHour(5), 10), algo.TokenBucket(algo.PerDay(5), 9),
		algo.Calendar(5, algo.Day(), time.UTC), algo.Calendar(5, algo.Week(time.Monday), zone), algo.Calendar(5, algo.Month(15), zone),
		algo.SlidingLog(algo.PerDay(5)), algo.CompactLog(algo.Per(5, 250*time.Millisecond)), algo.InFlight(5),
		algo.LeakyQueue(algo.PerDay(5), 9, time.Second),
	} {
		fmt.Fprintf(b, "\n%v\n", &a)
		for _, shadow := range []bool{false, true} {
			p := backend.Policy{Name: "api", Algorithm: a, Shadow: shadow, OnFailure: backend.FailClosed}
			read, name := names.Field, string(names.AppendField(nil, &p))
			if names.Apart(&p) {
				read, name = names.LogOf, string(names.AppendLog(nil, &p))
				require.True(t, a.Kind().Leased() || names.Beside(name+":back"))
			}
			fmt.Fprintf(b, "\t%s\n", name)
			got, ok := read(name)
			require.True(t, ok, name)
			require.Equal(t, p.Name, got.Name)
			require.Equal(t, shadow, got.Shadow)
			require.Equal(t, a.Identity(), got.Algorithm.Identity())
		}
	}
}
