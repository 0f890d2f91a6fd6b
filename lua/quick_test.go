package lua

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const instant = 1_745_000_000_000_000 // microseconds

// numbers are a policy's kind, limit, period, a, b, fill and what a take costs.
type numbers [7]float64

// TestQuickDecidesAsOthersDo: whatever a key holds, what is decided by the quick
// way is answered and stored as without it.
func TestQuickDecidesAsOthersDo(t *testing.T) {
	for _, ns := range []numbers{
		{19, 1 << 30, 1e6, 1 << 15, 1, 1 << 30, 1},
		{19, 100, 1e6, 1 << 15, 10_000, 1e6, 5},
		{19, 1 << 36, 1e12, 1<<15 - 1, 7, 1e6, 1},
		{19, 100, 1e6, 1 << 15, 10_000, 1e6, 100},
		{19, 100, 1e12, 1, 1000, 1e9, 1},
		{19, 100, 1e6, 1 << 15, 10_000, 1e6, 0.5},  // refused
		{19, 100.5, 1e6, 1 << 15, 10_000, 1e6, 1},  // refused
		{19, 100, 1e6, 1 << 15, 10_000, 1e6, 1000}, // refused
		{18, 100, 1e6, 0, 0, 0, 1},
	} {
		same(t, `(local room, quick = limit - asked,) takes and`, "$1 false and", around(ns, 4294967294), ns)
	}
}

// TestQuickDecidesSetsAsOthersDo is the same of policies that are decided
// together.
func TestQuickDecidesSetsAsOthersDo(t *testing.T) {
	roomy := numbers{19, 1 << 30, 1e6, 1 << 15, 1, 1 << 30, 1}
	tight := numbers{19, 100, 1e6, 1 << 15, 10_000, 1e6, 5}
	slow := numbers{19, 100, 1e12, 1, 1000, 1e9, 1}
	for _, set := range [][]numbers{
		{roomy, tight}, {roomy, tight, slow}, {slow, roomy, roomy, tight, roomy},
		{roomy, {17, 100, 1e6, 0, 0, 0, 1}, roomy}, {{18, 100, 1e6, 0, 0, 0, 1}, roomy, roomy},
		{roomy, {19, 100.5, 1e6, 1 << 15, 10_000, 1e6, 1}}, // refused
	} {
		alone := 4294967295 - uint32(len(set))
		values := around(set[0], alone)
		for _, ns := range set[1:] {
			values = append(values, around(ns, alone)...)
		}
		same(t, `if passes and status == 0 and v then`, "if false then", values, set...)
	}
}

// same decides takes by the script, and by the script with its quick way, an
// expression, changed to another.
func same(t *testing.T, quick, other string, values []string, policies ...numbers) {
	slow := regexp.MustCompile(quick).ReplaceAllString(Script, other)
	require.NotEqual(t, digest(Script), digest(slow))
	want, got := decided(t, slow, policies, values), decided(t, Script, policies, values)
	for i := range want {
		require.Equal(t, want[i], got[i], "%v", policies)
	}
}

// around returns values as keys may hold them: about each number that the rules
// draw a line at.
func around(ns numbers, alone uint32) (values []string) {
	limit, a, b, fill, cost := ns[1], ns[3], max(ns[4], 1), ns[5], ns[6]
	line := func(x float64) []float64 {
		return []float64{x - 1, x - 0.5, math.Nextafter(x, 0), x, math.Nextafter(x, math.Inf(1)), x + 1}
	}
	edges := func(xs ...float64) (all []float64) {
		for _, x := range xs {
			all = append(all, line(x)...)
		}
		return append(all, math.NaN(), math.Inf(1), math.Inf(-1), -1e17)
	}
	const far, fits = 1 << 31, 1 << 15
	whole := (limit - cost) * fits
	levels := edges(0, 1, 50*fits, whole, 1<<52)
	instants := edges(0, instant-1000, instant-(1<<52)/max(a, 1), instant, instant+fill)
	r := rand.New(rand.NewPCG(3, 3))
	some := func(xs []float64) float64 { return xs[r.IntN(len(xs))] }
	for range 6000 {
		version, length := byte(3), 25
		if r.IntN(16) == 0 {
			version = byte(r.IntN(5))
		}
		if r.IntN(16) == 0 {
			length = 23 + r.IntN(12)
		}
		h, due, level, at := uint32(far), alone, some(levels), some(instants)
		switch r.IntN(8) {
		case 0:
			h = uint32(int64((instant+fill)/1e6) + r.Int64N(3) - 1)
		case 1: // where a product is past what doubles hold, beside a level that shows it
			at = instant - math.Floor((1<<52)*b/a*r.Float64())
			level = math.Min(1<<52, whole+math.Floor((instant-at)*a/b))
		case 2:
			at = instant - float64(r.IntN(1_000_000))
			level = math.Min(1<<52, whole+math.Floor((instant-at)*a/b)+float64(r.IntN(3)-1))
		}
		switch r.IntN(12) {
		case 0:
			due = instant/1e6 + uint32(r.IntN(3)) - 1
		case 1: // of a longer list; never one that is to be swept: its value changes by itself
			due = alone - uint32(r.IntN(2))
		}
		v := binary.LittleEndian.AppendUint32([]byte{version}, h)
		v = binary.LittleEndian.AppendUint32(v, due)
		for _, x := range []float64{level, at, 0} {
			v = binary.LittleEndian.AppendUint64(v, math.Float64bits(x))
		}
		values = append(values, string(append(v, "more"...)[:length]))
	}
	return values
}

// decided runs a take by these policies on keys that hold these values, each
// under the first's field and, later in the list, under the others'. It returns
// what the script replied and what the keys hold then.
func decided(t *testing.T, script string, policies []numbers, values []string) (all []string) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	args := []any{fmt.Sprint(instant), nil}
	var fields, keys []string
	for p := range policies {
		fields = append(fields, fmt.Sprint("f", p))
		args = append(args, fields[p])
	}
	held, lives := make([]*redis.SliceCmd, len(values)), make([]*redis.DurationCmd, len(values))
	p := client.Pipeline()
	for i := range values {
		keys = append(keys, fmt.Sprint("quick:", i))
		p.Del(ctx, keys[i])
		for f, field := range fields {
			p.HSet(ctx, keys[i], field, values[(i+f*(len(values)/len(fields)+7))%len(values)])
		}
	}
	var replies []*redis.Cmd
	const most = 6000 // keys of a script: some tens of milliseconds
	for from := 0; from < len(keys); from += most {
		to := min(from+most, len(keys))
		args[1] = asked(to-from, policies)
		replies = append(replies, p.Eval(ctx, script, keys[from:to], slices.Clone(args)...))
	}
	for i := range values {
		held[i], lives[i] = p.HMGet(ctx, keys[i], fields...), p.PTTL(ctx, keys[i])
		p.Del(ctx, keys[i])
	}
	_, err := p.Exec(ctx)
	require.NoError(t, err)
	for i := range held {
		all = append(all, fmt.Sprintf("%x became %x, lives for %v", values[i], held[i].Val(), lives[i].Val().Round(time.Minute)))
	}
	for _, r := range replies {
		all = append(all, fmt.Sprintf("%x", r.Val()))
	}
	return all
}

// asked is a section of so many groups, of one take each by these policies.
func asked(groups int, policies []numbers) []byte {
	b := binary.LittleEndian.AppendUint16(nil, uint16(groups))
	shape, runs := byte(2), byte(0)
	if len(policies) == 1 {
		shape, runs = 1, 1
	}
	b = append(b, shape, 1, byte(len(policies)), 0, runs, 0, 2, 0, 0, 0)
	for _, ns := range policies {
		b = append(b, byte(ns[0]))
		for _, x := range ns[1:6] {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
		if shape == 1 {
			b = binary.LittleEndian.AppendUint32(b, 1)
		}
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(ns[6]))
	}
	return b
}
