package rule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPriceOfGivingBack measures what a TokenBucket does not give back since others gave
// back meanwhile, in per cent of what was reserved and not used: of 1,000 units per
// second, where reservations use a quarter of their estimate.
func TestPriceOfGivingBack(t *testing.T) {
	fmt.Printf("%-8s %-10s %10s %10s %10s\n", "burst", "held", "load 0.5", "load 0.9", "load 3")
	for _, burst := range []int64{1000, 10_000} {
		for _, held := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second} {
			fmt.Printf("%-8d %-10v", burst, held)
			for _, load := range []float64{0.5, 0.9, 3} {
				p := &price{a: TokenBucket(PerSecond(1000), burst), rand: rand.New(rand.NewPCG(1, 4)), now: 1e15}
				p.w = make([]int64, p.a.Words())
				p.run(steps(3000, 100_000), load, held)
				require.Positive(t, p.unused)
				fmt.Printf("  %4.1f %4.1f", 100*float64(p.leaked)/float64(p.unused), 100*float64(p.others)/float64(p.unused))
			}
			fmt.Println()
		}
	}
}

// price is a bucket whose reservations are held for half to one and a half times as long
// as the mean.
type price struct {
	a    Algorithm
	w    []int64
	now  int64
	rand *rand.Rand
	open []held

	unused, leaked, others int64 // in fractions: not used, and of it not given back
}

type held struct {
	Charge
	until int64
	level int64 // just after the charge
}

const estimate, actual = 40, 10

func (p *price) run(calls int, load float64, mean time.Duration) {
	for range calls {
		next := p.now + int64(p.rand.ExpFloat64()*1e6*actual/(1000*load))
		for len(p.open) > 0 && p.open[0].until <= next {
			p.now = p.open[0].until
			p.settle(p.open[0])
			p.open = slices.Delete(p.open, 0, 1)
		}
		p.now = next
		if c, ok := reserve(&p.a, p.w, p.now, estimate); ok {
			v := p.a.View(p.w, p.now)
			h := held{c, p.now + int64((0.5+p.rand.Float64())*float64(mean.Microseconds())), v.z}
			i, _ := slices.BinarySearchFunc(p.open, h.until, func(o held, until int64) int { return int(o.until - until) })
			p.open = slices.Insert(p.open, i, h)
		}
	}
}

func (p *price) settle(h held) {
	const n = (estimate - actual) * fraction
	v := p.a.View(p.w, p.now)
	p.w = p.a.GiveBack(p.w, p.now, h.Charge, n/fraction)
	after := p.a.View(p.w, p.now)
	alone, back := max(0, min(n, h.level-mulDiv(p.now-h.At, p.a.a, p.a.b), v.z)), v.z-after.z
	p.unused, p.leaked, p.others = p.unused+n, p.leaked+n-alone, p.others+alone-back
}
