package topkeys_test

import (
	"fmt"
	"testing"

	"github.com/headgate-go/headgate/internal/topkeys"
)

func keys(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("user:", 100_000+i)
	}
	return all
}

// BenchmarkAdd is what a denial costs: of three keys, which have places; of many keys, of which
// few have one; and of a flood of three among many.
func BenchmarkAdd(b *testing.B) {
	many := keys(1 << 12)
	for _, c := range []struct {
		name string
		of   func(i int) string
	}{
		{"placed", func(i int) string { return many[i&3] }},
		{"many", func(i int) string { return many[i*7919&(1<<12-1)] }},
		{"flood", func(i int) string {
			if i&15 == 0 {
				return many[i*7919&(1<<12-1)]
			}
			return many[i&3]
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := topkeys.New()
			for i := range b.N {
				s.Add(c.of(i), uint64(i))
			}
		})
		b.Run(c.name+"-without", func(b *testing.B) {
			n := 0
			for i := range b.N {
				n += len(c.of(i))
			}
		})
	}
}
