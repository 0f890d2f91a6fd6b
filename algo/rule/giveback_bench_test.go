package rule

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkLog takes from a SlidingLog of n entries, and gives back somewhere in it.
func BenchmarkLog(b *testing.B) {
	for _, n := range []int64{100, 10_000, MaxLogLimit} {
		for _, refunds := range []bool{false, true} {
			b.Run(fmt.Sprintf("entries=%d/refunds=%v", n, refunds), func(b *testing.B) {
				a := SlidingLog(Per(MaxLogLimit, time.Duration(n)*time.Microsecond)) // an entry per microsecond
				w, now := make([]int64, a.Words()), int64(1e15)
				for range 2 * n {
					now++
					v := a.View(w, now)
					w = a.Take(w, &v, 2)
				}
				r := rand.New(rand.NewPCG(1, 1))
				if refunds {
					w = a.GiveBack(w, now, Charge{At: now - n/2}, 1)
				}
				b.Run("take", func(b *testing.B) {
					for range b.N {
						now++
						v := a.View(w, now)
						w = a.Take(w, &v, 2)
					}
				})
				if !refunds {
					return
				}
				for _, reach := range []int64{100, n} {
					b.Run(fmt.Sprint("settle/of-the-last=", reach), func(b *testing.B) {
						for range b.N {
							w = a.GiveBack(w, now, Charge{At: now - 1 - r.Int64N(reach-2)}, 1)
						}
					})
				}
			})
		}
	}
}
