package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// shapeBorrow is that of a Borrow among a script's arguments.
const shapeBorrow = 7

// loan reads what a Borrow asks for. The borrower's ID is part of a key; see tag.
func (a *arguments) loan(g *asked) {
	l := &backend.Loan{Length: time.Duration(a.long()) * time.Microsecond, Seq: uint32(a.long())}
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

func bit(is bool) byte {
	if is {
		return 1
	}
	return 0
}
