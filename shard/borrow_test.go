package shard_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/shard"
	"github.com/stretchr/testify/require"
)

// borrower borrows units of one key.
type borrower struct {
	*shard.Store
	list spreadList
	sub  string // that lent
	loan backend.Loan
}

func newBorrower(s *shard.Store, list spreadList) *borrower {
	return &borrower{Store: s, list: list, loan: backend.Loan{ID: backend.LeaseID{1}, Term: time.Second}}
}

// borrow borrows up to want units, from the share that is named.
func (b *borrower) borrow(cost, want int64, sub string, held ...backend.Held) (backend.Decision, error) {
	b.loan.Seq++
	b.loan.Want, b.loan.Held = want, [backend.MaxHeld]backend.Held{}
	copy(b.loan.Held[:], held)
	r := backend.Request{Op: backend.Borrow, Group: backend.Group{Key: "key", Sub: sub, Policies: b.list.policies, Shards: b.list.k, Cost: cost}, Loan: &b.loan}
	var d backend.Decision
	err := b.Do(context.Background(), &r, &d)
	b.sub = r.Sub
	return d, err
}

// TestBorrowOfAShare: one share lends, and settles what it has lent. A borrower that holds
// nothing borrows from a share that has room.
func TestBorrowOfAShare(t *testing.T) {
	s, _ := over(t)
	b := newBorrower(s, one(algo.FixedWindow(algo.PerDay(400)), 4))
	_, err := b.borrow(0, 30, "")
	require.NoError(t, err)
	require.Zero(t, b.loan.Lent.Units, "a share may be above its part of a limit that was lowered")
	do(t, s, peek("key", b.list, 1))
	d, err := b.borrow(0, 30, "")
	require.NoError(t, err)
	require.Equal(t, int64(30), b.loan.Lent.Units)
	require.False(t, b.loan.Lent.Recalled)
	require.Equal(t, int64(400), d.Limit)
	require.Equal(t, int64(370), d.Remaining, "%+v", d)
	first := b.sub
	require.Contains(t, shard.Names("key", 4), first)
	require.Equal(t, int64(30), do(t, s, peek("key", b.list, 1)).Lent)

	_, err = b.borrow(0, 0, first, backend.Held{Seq: 2, Used: 10})
	require.NoError(t, err)
	require.Equal(t, backend.Charged, b.loan.Lent.Settled)
	require.Equal(t, first, b.sub)
	d = do(t, s, peek("key", b.list, 1))
	require.Equal(t, int64(10), d.Used)
	require.Zero(t, d.Lent)

	for range 90 { // until no share has room
		do(t, s, take("key", b.list, 4))
	}
	_, err = b.borrow(0, 30, "")
	require.NoError(t, err)
	require.LessOrEqual(t, b.loan.Lent.Units, int64(15), "half of the room of one share")
	require.True(t, b.loan.Lent.Recalled, "another share may have more")
	do(t, s, take("key", b.list, 1))
}

// TestBorrowOfASpreadKeyIsRefused: a share may deny what another share has room for.
func TestBorrowOfASpreadKeyIsRefused(t *testing.T) {
	s, _ := over(t)
	b := newBorrower(s, one(algo.FixedWindow(algo.PerDay(400)), 4))
	var invalid *backend.InvalidError
	_, err := b.borrow(1, 30, "")
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "cost", invalid.What)
	_, err = b.borrow(0, 30, "another")
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "sub-key", invalid.What)
	require.Zero(t, do(t, s, peek("key", b.list, 1)).Used)
}
