package storetest

import (
	"fmt"
	"sync"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/oracle"
)

// ledger keeps an oracle for each policy of each key, and gives it every charge
// that the store reported. It groups charges as the contract does, by name and
// identity, so that a limit spent through two lists is one account.
type ledger struct {
	mu struct {
		sync.Mutex
		rows map[row]*account
	}
}

type row struct {
	key, sub, policy string
	identity         algo.Identity
}

type account struct {
	algo.Algorithm
	*oracle.Oracle
	changed bool // the numbers changed meanwhile: no algorithm states a bound for that
}

// note records what a decided request did. A reset starts a new account: its
// charges may exceed the bound together with those before it. Receipts of the
// wrong length are left to the case Receipt.
func (l *ledger) note(r *backend.Request, d *backend.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range 1 + len(r.And) {
		l.noteGroup(r.Op, r.GroupAt(i), d.Allowed)
	}
}

// noteGroup is called with the lock held.
func (l *ledger) noteGroup(op backend.Op, g *backend.Group, allowed bool) {
	for i, q := range g.Policies {
		at := row{g.Key, g.Sub, q.Name, q.Algorithm.Identity()}
		switch acc := l.mu.rows[at]; {
		case op == backend.Reset:
			delete(l.mu.rows, at)
		case op == backend.Take && allowed && g.Receipt != nil && i < len(g.Receipt.At):
			if acc == nil {
				acc = &account{Algorithm: q.Algorithm, Oracle: oracle.New(q.Algorithm)}
				l.mu.rows[at] = acc
			}
			acc.changed = acc.changed || acc.Algorithm != q.Algorithm
			acc.Oracle.Add(g.Receipt.At[i], g.CostOf(i))
		}
	}
}

// check returns the first bound that it finds broken.
func (l *ledger) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, acc := range l.mu.rows {
		if err := acc.Oracle.Check(); err != nil && !acc.changed {
			return fmt.Errorf("key %.80q, policy %s: %w", at.key, at.policy, err)
		}
	}
	return nil
}
