package headgate_test

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
)

// BenchmarkRememberedDenial is a call on a key that the deny cache knows to be spent.
func BenchmarkRememberedDenial(b *testing.B) {
	store, err := standalone.Open("redis://"+redistest.Start(b).Addr(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	l, err := headgate.New(store, []headgate.Policy{{Name: "hourly", Algorithm: algo.FixedWindow(algo.PerHour(1)), OnFailure: headgate.FailClosed}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	for range 2 {
		_, _ = l.Allow(ctx, "spent")
	}
	b.ReportAllocs()
	denied := 0
	for b.Loop() {
		if d, _ := l.Allow(ctx, "spent"); !d.Allowed {
			denied++
		}
	}
	if denied < b.N {
		b.Errorf("%d of %d calls were denied", denied, b.N)
	}
}
