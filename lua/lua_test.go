package lua

import (
	"context"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestMulDiv holds the script's floor(x * y / z) to exact arithmetic, most of
// all beside whole quotients, where a rounded product errs.
func TestMulDiv(t *testing.T) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	lines := strings.Join(assemble("muldiv", "muldiv"), "\n")
	script := "local all = {}\nfor i = 1, #ARGV, 3 do\n" +
		"local m1, m2, m3 = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])\n" +
		lines + "\nall[#all + 1] = string.format('%.0f', q)\nend\nreturn all"
	r := rand.New(rand.NewPCG(1, 1))
	for range 40 {
		var factors []any
		var want []string
		for range 500 {
			x, y, z := besideWhole(r)
			factors = append(factors, x, y, z)
			q := new(big.Int).Mul(big.NewInt(x), big.NewInt(y))
			want = append(want, q.Div(q, big.NewInt(z)).String())
		}
		got, err := client.Eval(ctx, script, nil, factors...).StringSlice()
		require.NoError(t, err)
		require.Len(t, got, len(want))
		for i := range want {
			require.Equal(t, want[i], got[i], "%d * %d / %d", factors[3*i], factors[3*i+1], factors[3*i+2])
		}
	}
}

// besideWhole draws x, y and z, most of them with x*y beside a multiple of z.
func besideWhole(r *rand.Rand) (x, y, z int64) {
	z = 1 + r.Int64N(1<<(1+r.IntN(45)))
	y = 1 + r.Int64N(1<<(1+r.IntN(51)))
	x = r.Int64N(z)
	if g := new(big.Int).GCD(nil, nil, big.NewInt(y), big.NewInt(z)); r.IntN(2) == 0 && g.Int64() < z {
		// x with x*y = -1 or +1 mod z: the quotient is a whole number but for 1/z.
		if inv := new(big.Int).ModInverse(big.NewInt(y), big.NewInt(z)); inv != nil {
			x = inv.Int64()
			if r.IntN(2) == 0 {
				x = z - x
			}
		}
	}
	return x, y, z
}

func TestScriptHoldsNoDirectives(t *testing.T) {
	require.NotContains(t, Script, "--")
	require.Len(t, SHA, 40)
}

// TestScriptHoldsNoNames: what a server compiles has numbers in place of all names.
func TestScriptHoldsNoNames(t *testing.T) {
	script := regexp.MustCompile(`'(?:[^'\\]|\\.)*'`).ReplaceAllString(Script, "")
	for _, word := range regexp.MustCompile(`\b[A-Z][A-Z_]+\b`).FindAllString(script, -1) {
		require.Contains(t, []string{"KEYS", "ARGV"}, word)
	}
	require.NotRegexp(t, `\bs\.[a-z]|\bstates\[p\]\.[a-z]`, script)
}

// TestScriptStays: naming a number, or moving a line, changes no byte of what is sent.
// A change that is meant to changes this: servers then load a second script while
// releases of both kinds run.
func TestScriptStays(t *testing.T) {
	require.Equal(t, "3e4010d4ed5fb13d4bef760be8f38c1a0fa94075", SHA)
}

// TestNamesBeforeReads: what a server's Lua may lack is named before the first read, so that
// an error of it has counted nothing.
func TestNamesBeforeReads(t *testing.T) {
	_, rest, ok := strings.Cut(Script, "local now =")
	require.True(t, ok)
	for _, line := range strings.Split(rest, "\n") {
		code, _, _ := strings.Cut(line, "--")
		require.NotRegexp(t, `\b(struct|redis|bit|cjson|cmsgpack|os)\.`, code)
	}
}
