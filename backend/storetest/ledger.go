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
	a       algo.Algorithm
	oracle  *oracle.Oracle
	changed bool // the numbers changed meanwhile: no algorithm states a bound for that
}

// note records what a decided request did. A reset starts a new account: its
// charges may exceed the bound together with those before it. Receipts of the
// wrong length are left to the case Receipt.
func (l *ledger) note(r *backend.Request, d *backend.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range r.Policies {
		at := row{r.Key, r.Sub, r.Policies[i].Name, r.Policies[i].Algorithm.Identity()}
		switch {
		case r.Op == backend.Reset:
			delete(l.mu.rows, at)
		case r.Op == backend.Take && d.Allowed && i < len(r.Receipt.At):
			l.admit(at, r.Policies[i].Algorithm, r.Receipt.At[i], r.CostOf(i))
		}
	}
}

func (l *ledger) admit(at row, a algo.Algorithm, us, units int64) {
	if l.mu.rows == nil {
		l.mu.rows = map[row]*account{}
	}
	acc := l.mu.rows[at]
	if acc == nil {
		acc = &account{a: a, oracle: oracle.New(a)}
		l.mu.rows[at] = acc
	}
	acc.changed = acc.changed || acc.a != a
	acc.oracle.Add(us, units)
}

// check returns the first bound that it finds broken.
func (l *ledger) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, acc := range l.mu.rows {
		if acc.changed {
			continue
		}
		if err := acc.oracle.Check(); err != nil {
			return fmt.Errorf("key %.80q, policy %s: %w", at.key, at.policy, err)
		}
	}
	return nil
}
