package lua

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const instant = 1_745_000_000_000_000 // microseconds

// TestQuickDecidesAsOthersDo: whatever a key holds, what is decided by the quick
// way is answered and stored as without it.
func TestQuickDecidesAsOthersDo(t *testing.T) {
	slow := strings.Replace(Script, "local quick, room, add, edge = once and", "local quick, room, add, edge = false and", 1)
	require.NotEqual(t, Script, slow)
	// kind, limit, period, a, b, fill and the takes' cost
	for _, ns := range [][7]float64{
		{3, 1 << 30, 1e6, 1 << 20, 1, 1 << 30, 1},
		{3, 100, 1e6, 1 << 20, 10_000, 1e6, 5},
		{3, 1 << 31, 1e12, 1<<20 - 1, 7, 1e6, 1},
		{3, 100, 1e6, 1 << 20, 10_000, 1e6, 100},
		{3, 100, 1e12, 1, 1000, 1e9, 1},
		{3, 100, 1e6, 1 << 20, 10_000, 1e6, 0.5},  // refused
		{3, 100.5, 1e6, 1 << 20, 10_000, 1e6, 1},  // refused
		{3, 100, 1e6, 1 << 20, 10_000, 1e6, 1000}, // refused
		{2, 100, 1e6, 0, 0, 0, 1},
	} {
		values := around(ns)
		want, got := decided(t, slow, ns, values), decided(t, Script, ns, values)
		for i := range want {
			require.Equal(t, want[i], got[i], "%v", ns)
		}
	}
}

// around returns values as keys may hold them: about each number that the rules
// draw a line at.
func around(ns [7]float64) (values []string) {
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
	const far, fits = 1 << 54, 1 << 20
	whole := (limit - cost) * fits
	horizons := edges(instant+fill, far)
	levels := edges(0, 1, 50*fits, whole, 1<<51)
	instants := edges(0, instant-1000, instant-(1<<52)/max(a, 1), instant, instant+fill)
	r := rand.New(rand.NewPCG(3, 3))
	some := func(xs []float64) float64 { return xs[r.IntN(len(xs))] }
	for range 6000 {
		version, length := byte(1), 25
		if r.IntN(16) == 0 {
			version = byte(r.IntN(4))
		}
		if r.IntN(16) == 0 {
			length = 23 + r.IntN(12)
		}
		h, level, at := float64(far), some(levels), some(instants)
		switch r.IntN(8) {
		case 0:
			h = some(horizons)
		case 1: // where a product is past what doubles hold, beside a level that shows it
			at = instant - math.Floor((1<<51)*b/a*r.Float64())
			level = math.Min(1<<51, whole+math.Floor((instant-at)*a/b))
		case 2:
			at = instant - float64(r.IntN(1_000_000))
			level = math.Min(1<<51, whole+math.Floor((instant-at)*a/b)+float64(r.IntN(3)-1))
		}
		v := []byte{version}
		for _, x := range []float64{h, level, at, 0} {
			v = binary.LittleEndian.AppendUint64(v, math.Float64bits(x))
		}
		values = append(values, string(append(v, "more"...)[:length]))
	}
	return values
}

// decided runs a take on keys that hold these values, and returns what the
// script replied and what they hold then.
func decided(t *testing.T, script string, ns [7]float64, values []string) (all []string) {
	client, ctx := redistest.Shared(t).Client(t), context.Background()
	asked := binary.LittleEndian.AppendUint16(nil, uint16(len(values)))
	asked = append(asked, 1, 1, 1, 0, 1, 0, 2, 0, 0, 0, byte(ns[0]))
	for _, x := range ns[1:6] {
		asked = binary.LittleEndian.AppendUint64(asked, math.Float64bits(x))
	}
	asked = binary.LittleEndian.AppendUint32(asked, 1)
	asked = binary.LittleEndian.AppendUint64(asked, math.Float64bits(ns[6]))
	var keys []string
	held, lives := make([]*redis.StringCmd, len(values)), make([]*redis.DurationCmd, len(values))
	p := client.Pipeline()
	for i, v := range values {
		keys = append(keys, fmt.Sprint("quick:", i))
		p.Del(ctx, keys[i])
		p.HSet(ctx, keys[i], "f", v)
	}
	reply := p.Eval(ctx, script, keys, fmt.Sprint(instant), asked, "f")
	for i := range values {
		held[i], lives[i] = p.HGet(ctx, keys[i], "f"), p.PTTL(ctx, keys[i])
		p.Del(ctx, keys[i])
	}
	_, err := p.Exec(ctx)
	require.NoError(t, err)
	for i := range held {
		all = append(all, fmt.Sprintf("%x became %x, ends %v", values[i], held[i].Val(), lives[i].Val() > 0))
	}
	return append(all, fmt.Sprintf("%x", reply.Val()))
}
