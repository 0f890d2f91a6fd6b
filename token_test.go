package headgate_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// resumed returns the reservation of 400 tokens by one limiter as another has it.
func resumed(t *testing.T, l, other *headgate.Limiter) *headgate.Reservation {
	t.Helper()
	r, d := reserve(t, l, 400)
	require.True(t, d.Allowed)
	r, err := other.Resume(r.Token())
	require.NoError(t, err)
	return r
}

// TestTokenOfAnotherOrder: what was used is given in the order of the limiter that settles,
// and settles the lease by the names of its policies, whether the store has the lease or not.
func TestTokenOfAnotherOrder(t *testing.T) {
	ctx := context.Background()
	slots := headgate.Policy{Name: "running", Algorithm: algo.InFlight(9), OnFailure: headgate.FailOpen}
	tokens, calls := daily("tokens", 3_000_000), daily("calls", 100)
	for name, on := range map[string]backend.Store{"memory": memory.New(nil), "server": unhurried(t, redistest.Start(t))} {
		for _, order := range [][]headgate.Policy{{tokens, slots}, {calls, tokens}} {
			for _, lost := range []backend.Ops{0, onReserve} {
				t.Run(fmt.Sprint(name, order[0].Name, lost), func(t *testing.T) {
					s := lossyOf(on)
					s.lose(lost, 0)
					signed := &headgate.Options{TokenKey: []byte("of sixteen bytes")}
					l, other := limiter(t, s, signed, order[1], order[0]), limiter(t, s, signed, order...)
					require.NoError(t, other.Reset(ctx, "k"))
					commit := func(units ...int64) {
						r, d, err := l.Reserve(ctx, headgate.Call{Key: "k"})
						require.NoError(t, err)
						require.True(t, d.Allowed)
						r, err = other.Resume(r.Token())
						require.NoError(t, err)
						again, err := other.Resume(r.Token())
						require.NoError(t, err)
						require.NoError(t, r.Commit(ctx, units...))
						require.NoError(t, headgate.Reservations{r}.Commit(ctx, units))
						require.ErrorIs(t, again.Commit(ctx, units...), headgate.ErrNotHeld)
					}
					slot := int64(0)
					if order[1].Name == "tokens" {
						slot = 2
						commit(1, 250)
						commit()
						requireUsed(t, other, slot, 251)
						return
					}
					commit(250, 1)
					commit()
					commit(2_000_000, 1)
					requireUsed(t, other, 2_000_251, slot)
				})
			}
		}
	}
}

// TestTokenOfOtherNames: a policy of another name is the one that the token does not name.
func TestTokenOfOtherNames(t *testing.T) {
	ctx, s := context.Background(), memory.New(nil)
	list := []headgate.Policy{daily("calls", 100), daily("tokens", 4000), daily("bytes", 8000)}
	l := limiter(t, s, nil, list...)
	renamed := list[1]
	renamed.Name = "units"
	other := limiter(t, s, nil, list[2], renamed, list[0])
	r, _, err := l.Reserve(ctx, headgate.Call{Key: "k", Costs: []int64{1, 400, 800}})
	require.NoError(t, err)
	r, err = other.Resume(r.Token())
	require.NoError(t, err)
	require.NoError(t, r.Commit(ctx, 1000, 250, 2))
	requireUsed(t, l, 2, 250, 1000)
}

// TestTokenOfAShadow: a policy that was a shadow when its units were reserved is settled
// as one, where another release enforces it. So is one that was enforced.
func TestTokenOfAShadow(t *testing.T) {
	ctx, s := context.Background(), memory.New(nil)
	calls, tokens := daily("calls", 100), daily("tokens", 1000)
	enforced := limiter(t, s, nil, calls, tokens)
	tokens.Shadow = true
	shadow := limiter(t, s, nil, calls, tokens)
	require.NoError(t, resumed(t, shadow, enforced).Commit(ctx, 1, 250))
	requireUsed(t, shadow, 1, 250)
	requireUsed(t, enforced, 1, 0)
	require.NoError(t, resumed(t, enforced, shadow).Commit(ctx, 1, 50))
	requireUsed(t, shadow, 2, 250)
	requireUsed(t, enforced, 2, 50)
}

// TestTokenOfAPlainKey: a reservation of a key that another release spreads is settled
// where it was charged.
func TestTokenOfAPlainKey(t *testing.T) {
	ctx, s := context.Background(), memory.New(nil)
	calls, tokens := daily("calls", 100), daily("tokens", 4000)
	plain := limiter(t, s, nil, calls, tokens)
	spread := limiter(t, s, &headgate.Options{Shards: 4}, calls, tokens)
	r := resumed(t, plain, spread) // a lease is never of a spread key
	require.NoError(t, r.Extend(ctx))
	require.NoError(t, r.Commit(ctx, 1, 250))
	requireUsed(t, plain, 1, 250)
}

// text is a token as a stranger can write it: by the format alone.
func text(version, flags byte, key string) []byte {
	b := append([]byte{version, flags}, "0123456789abcdef"...)
	b = binary.AppendUvarint(b, 60_000)
	b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
	return append(append(b, 2, 5), "calls"...)
}

// TestForgedToken: without a TokenKey nobody can write a text that charges a key, and a
// text names only what a limiter could have charged.
func TestForgedToken(t *testing.T) {
	s := memory.New(nil)
	l := limiter(t, s, nil, daily("calls", 100))
	encode := base64.RawURLEncoding.EncodeToString
	good := text(1, 0, "kk") // 31 bytes: the last letter has bits of no byte
	_, err := l.Resume(encode(good))
	require.NoError(t, err)
	for name, forged := range map[string]string{
		"unresolved":          encode(text(1, 1, "victim")),
		"unknown flag":        encode(text(1, 4, "k")),
		"unknown version":     encode(text(2, 0, "k")),
		"no key":              encode(text(1, 0, "")),
		"long key":            encode(text(1, 0, strings.Repeat("k", 5000))),
		"more than a token":   encode(append(text(1, 0, "k"), 0)),
		"line feed in it":     encode(good)[:8] + "\n" + encode(good)[8:],
		"another last letter": encode(good)[:len(encode(good))-1] + "B",
		"longer number":       encode(append(append(append([]byte(nil), good[:18]...), 0xe0, 0xd4, 0x83, 0x00), good[21:]...)),
	} {
		r, err := l.Resume(forged)
		invalid(t, err, "token", "")
		require.NoError(t, r.Commit(context.Background(), 50), name)
	}
	requireCount(t, l, "victim", 0)
}

// TestReasonOfARefusedToken: the error has what is wrong as far as it can be known, and
// nothing of a text whose signature is wrong.
func TestReasonOfARefusedToken(t *testing.T) {
	s, calls := memory.New(nil), daily("calls", 100)
	key := &headgate.Options{TokenKey: []byte("of sixteen bytes")}
	signed, plain := limiter(t, s, key, calls), limiter(t, s, nil, calls)
	other := limiter(t, s, &headgate.Options{TokenKey: []byte("OF SIXTEEN BYTES")}, calls)
	of := func(l *headgate.Limiter) string {
		r, _, err := l.Reserve(context.Background(), headgate.Call{Key: "k"})
		require.NoError(t, err)
		return r.Token()
	}
	good, bare := of(signed), of(plain)
	for name, c := range map[string]struct {
		by   *headgate.Limiter
		text string
		want string
	}{
		"another key":      {other, good, "the key is another one, or the text was changed"},
		"changed":          {signed, good[:20] + "AAAA" + good[24:], "the key is another one, or the text was changed"},
		"changed version":  {signed, "AAAA" + good[4:], "the key is another one, or the text was changed"},
		"cut":              {signed, good[:len(good)/4*4-4], "the key is another one, or the text was changed"},
		"not signed":       {signed, bare, "the key is another one, or the text was changed"},
		"no key":           {plain, good, "want Options.TokenKey"},
		"empty":            {signed, "", "want the text of a reservation"},
		"no text of ours":  {signed, "Bearer 123", "want the text of a reservation"},
		"cut, no key":      {plain, bare[:len(bare)-4], "want the text of a reservation"},
		"of more policies": {limiter(t, s, key, calls, daily("tokens", 9)), good, "by a limiter with as many policies"},
	} {
		_, err := c.by.Resume(c.text)
		require.ErrorAs(t, err, new(*headgate.InvalidError), name)
		require.ErrorContains(t, err, c.want, name)
	}
}

// TestTokenOfUnresolved: a reservation that no store decided has a token only if it can be
// signed.
func TestTokenOfUnresolved(t *testing.T) {
	for _, key := range [][]byte{nil, []byte("of sixteen bytes")} {
		s := newLossy()
		l := limiter(t, s, &headgate.Options{TokenKey: key}, daily("calls", 100))
		s.lose(onAll, 0)
		r, d, err := l.Reserve(context.Background(), headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.True(t, d.Allowed)
		s.lose(0, 0)
		require.Equal(t, key == nil, r.Token() == "")
		if key != nil {
			r, err = l.Resume(r.Token())
			require.NoError(t, err)
			require.NoError(t, r.Commit(context.Background(), 3))
			requireUsed(t, l, 3)
		}
	}
}

// TestTokenOfAShadowedPolicy: a limiter whose shadow has a limit below the instances settles
// what was reserved of the policy before.
func TestTokenOfAShadowedPolicy(t *testing.T) {
	ctx, s, p := context.Background(), memory.New(nil), daily("p", 100)
	p.OnFailure = headgate.FailLocal
	before := limiter(t, s, &headgate.Options{Instances: 4}, p)
	r, _, err := before.Reserve(ctx, headgate.Call{Key: "k", Costs: []int64{10}})
	require.NoError(t, err)
	p.Algorithm, p.Shadow = p.Algorithm.WithMax(3), true
	resumed, err := limiter(t, s, &headgate.Options{Instances: 4}, p).Resume(r.Token())
	require.NoError(t, err)
	require.NoError(t, resumed.Commit(ctx, 1))
	requireUsed(t, before, 1)
}
