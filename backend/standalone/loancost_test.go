package standalone_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestLoanCost prints what a Borrow that rolls a lease over costs the server, and a take
// of a key of which units are lent, beside a take of one of which none are. Loans wait when their
// holders have stopped using them and have not settled them.
func TestLoanCost(t *testing.T) {
	if !*serverCost {
		t.Skip("run by make server-cost")
	}
	server := redistest.Start(t)
	s := standalone.New(server.Client(t), &standalone.Options{Budget: 10 * time.Second, DisableBatching: true})
	list := []backend.Policy{{Name: "p", Algorithm: algo.TokenBucket(algo.PerSecond(1<<30), 1<<30), OnFailure: backend.FailClosed}}
	take := func(key string) func() error {
		return func() error {
			r := backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: list, Cost: 1}}
			return s.Do(context.Background(), &r, new(backend.Decision))
		}
	}
	for _, holders := range []int{1, 1000} {
		key := fmt.Sprint("of ", holders)
		loans := make([]backend.Loan, holders)
		for i := range loans {
			loans[i] = backend.Loan{Term: time.Second, Want: 100}
			binary.LittleEndian.PutUint64(loans[i].ID[:], uint64(i+1))
		}
		calls := 0
		borrow := func() error {
			l := &loans[calls%holders]
			calls++
			l.Held, l.Keep = [backend.MaxHeld]backend.Held{{Seq: l.Seq, Used: 50}}, min(50, l.Lent.Units)
			l.Seq++
			r := backend.Request{Op: backend.Borrow, Group: backend.Group{Key: key, Policies: list}, Loan: l}
			return s.Do(context.Background(), &r, new(backend.Decision))
		}
		all := func() {
			for range holders {
				require.NoError(t, borrow())
			}
		}
		loanCost(t, server, fmt.Sprintf("a Borrow of one of %d holders", holders), all, borrow, take("plain"))
		loanCost(t, server, fmt.Sprintf("a take beside %d holders", holders), all, take(key), take("plain"))
		waiting := func() {
			all()
			time.Sleep(loans[0].Term)
		}
		loanCost(t, server, fmt.Sprintf("a take beside %d loans that wait", holders), waiting, take(key), take("plain"))
	}
}

// loanCost prints the median of what a call costs the server, and of its ratio to another.
// before runs before each measurement, which ends sooner than the leases of before.
func loanCost(t *testing.T, server *redistest.Server, name string, before func(), each, base func() error) {
	once := func(call func() error) float64 {
		before()
		server.ResetStats(t)
		for range 2000 {
			require.NoError(t, call())
		}
		return server.CommandStats(t)["evalsha"].PerCall
	}
	var all, ratios []float64
	for range 9 {
		a, b := once(each), once(base)
		all, ratios = append(all, a), append(ratios, a/b)
	}
	slices.Sort(all)
	slices.Sort(ratios)
	fmt.Printf("%-42s %8.2f %8.2f   (µs, and the ratio to a take of a key of which nothing is lent)\n", name, all[len(all)/2], ratios[len(ratios)/2])
}
