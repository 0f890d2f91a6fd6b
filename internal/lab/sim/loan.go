package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
)

// shapeBorrow is that of a Borrow among a script's arguments.
const shapeBorrow = 7

// loan reads what a Borrow asks for. The borrower's ID is part of a key; see tag.
func (a *arguments) loan(g *asked) {
	l := &backend.Loan{Term: time.Duration(a.long()) * time.Microsecond, Seq: uint32(a.long())}
	copy(l.Epoch[:], a.take(8))
	l.Want, l.Keep, g.cost = a.double(), a.double(), a.double()
	for i := range a.byte() {
		if i == len(l.Held) {
			a.err = errScript
			return
		}
		l.Held[i] = backend.Held{Seq: uint32(a.long()), Used: a.double()}
	}
	a.take(a.byte()) // for how long Redis keeps the borrower's record
	g.loan = l
}

// borrower reads the ID in the name of a borrower's record.
func (a *arguments) borrower(g *asked, key string) {
	_, id, ok := strings.Cut(key, ":b:")
	if !ok || len(id) != len(g.loan.ID) {
		a.err = errScript
		return
	}
	loan := *g.loan
	copy(loan.ID[:], id)
	g.loan = &loan
}

// borrow answers a Borrow: what was settled and lent, and what the policies are now.
func (s *state) borrow(g *asked) []byte {
	loan := *g.loan
	loan.Each = make([]int64, len(g.policies))
	r := backend.Request{Op: backend.Borrow, Loan: &loan, Group: backend.Group{
		Key: g.tag, Policies: g.policies, Cost: g.cost, Each: make([]backend.State, len(g.policies)),
	}}
	var d backend.Decision
	err := s.store.Do(background, &r, &d)
	g.done = append(g.done, done{costs: slices.Repeat([]int64{g.cost}, len(g.policies)), passed: err == nil && d.Allowed, each: r.Each})
	if err != nil {
		return letter(err)
	}
	g.lent = &loan.Lent
	b := []byte{1, byte(loan.Lent.Settled) + 4*bit(loan.Lent.Recalled), bit(d.Allowed)}
	b = double(double(double(b, loan.Lent.Units), loan.Lent.Ends.Microseconds()), loan.Lent.Borrowers)
	for i := range g.policies {
		b = append(b, bit(r.Each[i].RetryAfter == 0))
		if g.policies[i].Shadow {
			b = double(b, loan.Each[i])
		}
		b = s.retry(s.metBy(b, g, i), g, i, g.cost, &r.Each[i])
	}
	return b
}

// borrower is a process that borrows of a key or sub-key.
type borrower struct {
	tag string
	id  backend.LeaseID
}

// loanOf is a loan that a node has told a process of.
type loanOf struct {
	proc  int
	key   string
	units int64
	from  time.Time
	ends  time.Time // at the latest: with the windows of its policies
}

// lends notes what a Borrow has lent, and the loan before it if that was charged whole.
func (l *ledger) lends(proc int, key string, now int64, g *asked) {
	if g.lent == nil {
		return
	}
	id := borrower{g.tag, g.loan.ID}
	if before := l.loans[id]; before.units > 0 && (g.lent.Settled == backend.Ended || g.lent.Settled == backend.NoneHeld) {
		l.burnt = append(l.burnt, loanOf{proc, key, before.units, before.from, time.Now()})
	}
	if g.lent.Units > 0 {
		l.lent[holding{proc, key}] = append(l.lent[holding{proc, key}], time.Now())
	}
	l.loans[id] = loanOf{proc: proc, key: key, units: g.lent.Units, from: time.Now()}
	for i := range g.policies {
		a := &g.policies[i].Algorithm
		v := a.View(make([]int64, a.Words()), now)
		if closes := a.Closes(&v); closes > 0 && closes < now+backend.MaxTerms*g.loan.Term.Microseconds() {
			delete(l.loans, id) // it may end with its window
		}
	}
}

// holding is a process and a key of which it holds units.
type holding struct {
	proc int
	key  string
}

// resetsEndLoans looks at calls from loans after a Reset of the same process has returned. Their
// units must have been lent after a node ran the Reset.
func (w *World) resetsEndLoans() (err error) {
	resets := map[holding][]*outcome{}
	w.outcomes(func(_ *caller, o *outcome) {
		if h := (holding{o.by.number, o.key}); o.op == backend.Reset && o.err == nil && !spread(nil, o) {
			resets[h] = append(resets[h], o)
		}
	})
	w.outcomes(func(c *caller, o *outcome) {
		h := holding{o.by.number, o.key}
		if o.d.Source != headgate.FromLoan {
			return
		}
		for _, r := range resets[h] {
			ran := firstFrom(w.ledger.removed[h], r.begin)
			if lent := firstFrom(w.ledger.lent[h], ran); !r.end.After(o.begin) && lent.After(o.end) && err == nil {
				err = fmt.Errorf("%w: reset at %v", o.at(c), ran.Sub(w.start))
			}
		}
	})
	return err
}

// firstFrom returns the first instant that is not before another, or one in the far future.
func firstFrom(all []time.Time, from time.Time) time.Time {
	i, _ := slices.BinarySearchFunc(all, from, time.Time.Compare)
	if i == len(all) {
		return from.AddDate(1, 0, 0)
	}
	return all[i]
}

// nothingBurnt looks at loans that were charged whole, although their process lived and could
// reach its node, or was late for less than two terms.
func (w *World) nothingBurnt() error {
	for _, b := range w.ledger.burnt {
		other := func(k faultKind) bool { return k != stopped }
		if !w.troubledBy(other, b.proc, "", b.from.Add(-calm), b.ends) && !w.ledger.disturbed(b.from, b.ends) {
			return fmt.Errorf("process %d, %s: %d units lent at %v were charged whole, by %v", b.proc, b.key, b.units, b.from.Sub(w.start), b.ends.Sub(w.start))
		}
	}
	return nil
}

func bit(is bool) byte {
	if is {
		return 1
	}
	return 0
}
