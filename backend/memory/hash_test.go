package memory

import (
	"context"
	"crypto/rand"
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestHashOfLikeTexts: texts that differ in a bit, in their lengths or in the order of their
// parts have different hashes, by whatever secret.
func TestHashOfLikeTexts(t *testing.T) {
	redistest.Plain(t)
	for range 20 {
		all := newSecrets()
		k, seen := &all[ofKeys], map[uint64]string{}
		add := func(s string) {
			h := k.hash(s)
			if other, ok := seen[h]; ok && other != s {
				t.Fatalf("%q and %q", other, s)
			}
			seen[h] = s
		}
		for n := range 70 {
			add(strings.Repeat("\x00", n))
			add(strings.Repeat("a", n))
			for bit := range n * 8 {
				b := []byte(strings.Repeat("a", n))
				b[bit/8] ^= 1 << (bit % 8)
				add(string(b))
			}
		}
		for i := range 5000 {
			add(fmt.Sprint("user:", i))
			add(fmt.Sprintf("%08d%08d", i, 7))
			add(fmt.Sprintf("%08d%08d", 7, i))
			add(fmt.Sprintf("%016d%016d%08d", i, 7, i))
		}
	}
}

// TestHashSpreads: a bit of a text changes half of the hash's bits, and keys that are numbered
// lie evenly in stripes and tables.
func TestHashSpreads(t *testing.T) {
	all := newSecrets()
	k, changed, n := &all[ofKeys], [64]int{}, 0
	for i := range 2000 {
		text := []byte(fmt.Sprintf("user:%06d", i))
		h := k.hash(string(text))
		for bit := range len(text) * 8 {
			text[bit/8] ^= 1 << (bit % 8)
			for d := h ^ k.hash(string(text)); d != 0; d &= d - 1 {
				changed[bits.TrailingZeros64(d)]++
			}
			text[bit/8] ^= 1 << (bit % 8)
			n++
		}
	}
	for bit, times := range changed {
		require.InDelta(t, 0.5, float64(times)/float64(n), 0.02, "bit %d", bit)
	}
	s, perStripe := New(nil), map[int]int{}
	for i := range 256_000 {
		perStripe[s.stripeAt(s.hash(&backend.Group{Key: fmt.Sprint("user:", i)}))]++
	}
	for i := range s.stripes {
		require.InDelta(t, 1000, perStripe[i], 250, "stripe %d", i)
	}
}

// TestAllOfAKeyInItsStripe: the hash of whatever is kept of a key shows the key's stripe, and
// so does a lease's that many leases of other keys are beside.
func TestAllOfAKeyInItsStripe(t *testing.T) {
	s, list := New(nil), make([]backend.Policy, len(kinds))
	for i, a := range kinds {
		list[i] = by(fmt.Sprint("p", i), a)
	}
	for i := range 1000 {
		g := backend.Group{Key: fmt.Sprint(i), Sub: []string{"", "sub"}[i%2], Policies: list, Cost: 1}
		var id backend.LeaseID
		_, _ = rand.Read(id[:])
		r := backend.Request{Op: backend.Borrow, Group: g, Loan: &backend.Loan{ID: id, Seq: 1, Term: time.Second, Want: 2}}
		require.NoError(t, s.Do(context.Background(), &r, new(backend.Decision)))
		g.Lease = &backend.Lease{ID: id, Length: time.Minute}
		ask(t, s, backend.Reserve, g)
	}
	leases, borrowers := 0, 0
	for i := range s.stripes {
		mu := &s.stripes[i].mu
		for h := range mu.leases.open.kept {
			require.Equal(t, i, s.stripeAt(hash(h[0])))
			leases++
		}
		for h := range mu.borrowers.kept {
			require.Equal(t, i, s.stripeAt(hash(h[0])))
			borrowers++
		}
	}
	require.Equal(t, 1000, leases)
	require.Equal(t, 1000, borrowers)
	sound(t, s)
}
