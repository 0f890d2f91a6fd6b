package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// borrowed stands in the order of the comment on backend.Store, behind the cases of
// shadows. A store without the operation skips the cases, and lists of algorithms
// whose units are not lent do.
var borrowed = []sentence{
	{"Borrow", borrows, "A Borrow decides and charges its cost as a Take does, and settles and lends in the same step; " +
		"it may cost 0."},
	{"BorrowSettles", borrowSettles, "A Borrow settles that loan of Held which its ID holds: what was used is charged now. " +
		"Keep stays lent, and the rest is free."},
	{"BorrowKeeps", borrowKeeps, "What it keeps stays lent also where the count is at or above its limit: the process may have used it."},
	{"BorrowShare", borrowShare, "It lends up to Want units: beside those of Keep at most half of a fair share " +
		"of the room of every policy, until at most one Term from now."},
	{"LentCounts", lentCounts, "Lent units count as used by every request, which answers how many they are, and do not age."},
	{"LentEnds", lentEnds, "A loan stands for two Terms after Lent.Ends, and a settle until then is as any other. " +
		"What is not settled by its end is charged whole, and a settle after that changes nothing."},
	{"LentWindow", lentWindow, "A loan ends with the window that its units are charged to."},
	{"LentPart", lentPart, "Where the part of an enforced policy has ended or is not held, Keep is charged to the others as used, " +
		"and nothing stays lent."},
	{"LentRetry", lentRetry, "While units are lent, RetryAfter is at most until the first Lent.Ends that is to come, " +
		"or until a loan ends."},
	{"LentRecall", lentRecall, "After a Take, Reserve or Borrow that is denied only because units are lent, for ten seconds " +
		"units are lent only while there is room for its cost. Until there is, no loan ends later, and Lent.Recalled says so."},
	{"BorrowOnce", borrowsOnce, "A Borrow whose Seq is not above that of the last one of its ID is ErrNotHeld " +
		"and changes nothing."},
	{"LentReset", lentReset, "After a Reset no lent unit counts, and a settle of it finds that it is not held."},
	{"LentShadow", lentShadow, "Of a shadow as many units are lent as it has room for, which Loan.Each tells. " +
		"The loan is as long as without it."},
}

// loanTerm is what the cases borrow for: long, since some run on the real clock.
const loanTerm = time.Second

// borrower is a process that borrows of a key.
type borrower struct {
	*probe
	key  string
	list []backend.Policy
	loan backend.Loan
}

// borrower returns a new one, on the policies of the list whose units can be lent.
func (p *probe) borrower(key string, list []backend.Policy) *borrower {
	p.t.Helper()
	p.needsOp(backend.Borrow)
	p.needsClock()
	if p.k > 1 {
		p.t.Skip("a Borrow of a spread key is one of a share")
	}
	list = slices.DeleteFunc(slices.Clone(list), func(q backend.Policy) bool { return !q.Algorithm.Kind().Lends() })
	if len(list) == 0 {
		p.t.Skip("no unit of these algorithms is lent")
	}
	b := &borrower{probe: p, key: key, list: list, loan: backend.Loan{Term: loanTerm}}
	binary.LittleEndian.PutUint64(b.loan.ID[:], p.dice.Uint64()|1)
	return b
}

// ask sends a Borrow.
func (b *borrower) ask(cost, want, keep int64, held ...backend.Held) (backend.Decision, backend.Lent, error) {
	b.loan.Seq++
	return b.again(cost, want, keep, held...)
}

// again sends a Borrow with the number of the last one.
func (b *borrower) again(cost, want, keep int64, held ...backend.Held) (backend.Decision, backend.Lent, error) {
	b.t.Helper()
	loan := b.loan
	loan.Want, loan.Keep = want, keep
	copy(loan.Held[:], held)
	binary.LittleEndian.PutUint64(loan.Epoch[:], b.dice.Uint64())
	r := request(backend.Borrow, b.key, b.list, cost)
	r.Loan = &loan
	var d backend.Decision
	err := b.Store.Do(context.Background(), &r, &d)
	return d, loan.Lent, err
}

// lends borrows up to want units and requires how many are lent.
func (b *borrower) lends(want, lent int64, held ...backend.Held) {
	b.t.Helper()
	_, l, err := b.ask(0, want, 0, held...)
	b.must(err == nil && l.Units == lent, "of %d units %d were lent, want %d: %v", want, l.Units, lent, err)
}

// lastLoan names the loan of the last Borrow, of which so much was used.
func (b *borrower) lastLoan(used int64) backend.Held {
	return backend.Held{Seq: b.loan.Seq, Used: used}
}

func borrows(p *probe) {
	list := p.list(p.day(100))
	b := p.borrower("a", list)
	d, l, err := b.ask(10, 20, 0)
	p.must(err == nil && d.Allowed && l.Units == 20, "%+v %+v %v", d, l, err)
	p.used("a", b.list, 30)
	d, l, err = b.ask(0, 0, 0, b.lastLoan(0))
	p.must(err == nil && d.Allowed && l.Units == 0, "%+v %+v %v", d, l, err)
	p.used("a", b.list, 10)
	p.passes("a", b.list, 85)
	d, l, err = b.ask(10, 20, 0)
	p.must(err == nil && !d.Allowed && d.Remaining == 5-l.Units && d.RetryAfter > 0, "%+v %+v %v", d, l, err)
	for _, bad := range []backend.Loan{
		{}, {ID: b.loan.ID}, {ID: b.loan.ID, Seq: math.MaxUint32, Term: time.Millisecond},
		{ID: b.loan.ID, Seq: math.MaxUint32, Term: time.Second, Want: -1},
	} {
		r := request(backend.Borrow, "a", b.list, 1)
		r.Loan = &bad
		err := p.Store.Do(context.Background(), &r, new(backend.Decision))
		p.must(errors.As(err, new(*backend.InvalidError)), "the loan %+v gave %v", bad, err)
	}
}

func borrowSettles(p *probe) {
	b := p.borrower("a", p.list(p.day(100)))
	b.lends(40, 40)
	p.used("a", b.list, 40)
	_, l, err := b.ask(0, 30, 25, b.lastLoan(10))
	p.must(err == nil && l.Settled == backend.Charged && l.Units == 30, "%+v %v", l, err)
	p.used("a", b.list, 40) // 10 used, 30 lent
	_, l, err = b.ask(0, 0, 0, b.lastLoan(5), backend.Held{Seq: 1, Used: 40})
	p.must(err == nil && l.Settled == backend.Charged, "%+v %v", l, err)
	p.used("a", b.list, 15)
	_, l, err = b.ask(0, 0, 0, backend.Held{Seq: 2, Used: 5})
	p.must(err == nil && l.Settled == backend.NotHeld, "a loan that is settled already: %+v %v", l, err)
	p.used("a", b.list, 15)
}

func borrowKeeps(p *probe) {
	p.needsOp(backend.Record)
	b := p.borrower("a", p.list(p.day(100)))
	b.lends(40, 40)
	_, err := p.do(request(backend.Record, "a", b.list, 90))
	p.must(err == nil, "%v", err)
	d, l, err := b.ask(1, 40, 30, b.lastLoan(10))
	p.must(err == nil && !d.Allowed && l.Settled == backend.Charged && l.Units == 30, "%+v %+v %v", d, l, err)
	for _, s := range p.states("a", b.list) {
		p.must(s.Used == 130 && s.Lent == 30, "10 units are used, 90 recorded and 30 kept: %+v", s)
	}
}

func borrowShare(p *probe) {
	list := p.list(p.day(100))
	b, c := p.borrower("a", list), p.borrower("a", list)
	_, l, err := b.ask(0, 1000, 0)
	p.must(err == nil && l.Units == 50 && l.Borrowers == 1 && l.Ends > 0 && l.Ends <= loanTerm, "%+v %v", l, err)
	_, l, err = c.ask(0, 1000, 0)
	p.must(err == nil && l.Units <= 12+13 && l.Units >= 12, "%+v %v", l, err)
}

func lentCounts(p *probe) {
	b := p.borrower("a", p.list(p.day(100)))
	b.lends(40, 40)
	p.advance(loanTerm / 2)
	for _, s := range p.states("a", b.list) {
		p.must(s.Used == 40 && s.Lent == 40 && s.Remaining == 60 && s.ResetAfter > 0, "40 units are lent: %+v", s)
	}
	p.denied("a", b.list, 61)
	p.passes("a", b.list, 60)
	d := p.upTo("a", b.list, 1)
	p.must(!d.Allowed, "%+v", d)
}

func lentEnds(p *probe) {
	b := p.borrower("a", p.list(p.day(100)))
	_, l, err := b.ask(0, 40, 0)
	p.must(err == nil && l.Units == 40, "%+v %v", l, err)
	p.advance(l.Ends + 2*loanTerm - tick)
	p.used("a", b.list, 40)
	p.advance(tick)
	p.must(p.peek("a", b.list, 1).Used >= 39, "a loan that ended unsettled is not charged")
	for _, s := range p.states("a", b.list) {
		p.must(s.Lent == 0, "a loan that has ended still lends: %+v", s)
	}
	_, l, err = b.ask(0, 0, 0, b.lastLoan(3))
	p.must(err == nil && l.Settled == backend.Ended, "%+v %v", l, err)
	p.must(p.peek("a", b.list, 1).Used >= 39, "a settle after the end changed the count")
	c := p.borrower("late", b.list)
	_, l, err = c.ask(0, 40, 0)
	p.must(err == nil && l.Units == 40, "%+v %v", l, err)
	p.advance(l.Ends + 2*loanTerm - tick)
	_, l, err = c.ask(0, 30, 5, c.lastLoan(3))
	p.must(err == nil && l.Settled == backend.Charged && l.Units == 30, "%+v %v", l, err)
	p.used("late", c.list, 33)
}

func lentPart(p *probe) {
	list := p.carried(policy("window", algo.FixedWindow(algo.PerSecond(1000))), policy("bucket", algo.TokenBucket(algo.PerDay(100), 100)))
	part := func(key string, want backend.Settled, end func()) {
		b := p.borrower(key, list)
		p.set(p.now - p.now%1_000_000 + 1_500_000)
		b.lends(40, 40)
		p.passes(key, list, 25)
		end()
		_, l, err := b.ask(0, 40, 35, b.lastLoan(5))
		p.must(err == nil && l.Settled == want, "%+v %v", l, err)
		all := p.states(key, list)
		p.must(all[0].Used == all[0].Lent && all[1].Used-all[1].Lent == 65, "25 units were taken, 5 are used, and 35 in use: %+v", all)
	}
	part("ended", backend.Ended, func() { p.advance(time.Second) })
	part("reset", backend.NotHeld, func() { p.reset("reset", list[:1]) })
}

func lentWindow(p *probe) {
	list := p.list(p.day(100))
	b := p.borrower("a", list)
	const day = 86_400_000_000
	p.set(p.now - p.now%day + day - 300_000)
	_, l, err := b.ask(0, 40, 0)
	p.must(err == nil && l.Units == 40, "%+v %v", l, err)
	for i := range b.list {
		v := b.list[i].Algorithm.View(make([]int64, b.list[i].Algorithm.Words()), p.now)
		if closes := b.list[i].Algorithm.Closes(&v); closes > 0 {
			p.must(p.now+l.Ends.Microseconds() <= closes, "a loan ends %v after now, and its window before", l.Ends)
		}
	}
}

func lentRetry(p *probe) {
	b := p.borrower("a", p.list(p.day(100)))
	_, l, err := b.ask(0, 40, 0)
	p.must(err == nil && l.Units == 40, "%+v %v", l, err)
	d := p.denied("a", b.list, 61)
	p.must(d.RetryAfter > 0 && d.RetryAfter <= l.Ends, "%+v", d)
	p.passes("a", b.list, 60)
	d = p.denied("a", b.list, 50)
	p.must(d.RetryAfter > 0 && d.RetryAfter <= l.Ends, "%+v", d)
	p.advance(l.Ends)
	d = p.denied("a", b.list, 50)
	p.must(d.RetryAfter > 0 && d.RetryAfter <= 2*loanTerm, "the loan is late: %+v", d)
}

func lentRecall(p *probe) {
	p.needsOp(backend.Reserve)
	for _, op := range []backend.Op{backend.Take, backend.Reserve, backend.Borrow} {
		key := op.String()
		b := p.borrower(key, p.list(p.day(100)))
		b.lends(40, 40)
		ended := p.now + loanTerm.Microseconds()
		p.advance(loanTerm / 4)
		r := request(op, key, b.list, 70)
		switch op {
		case backend.Reserve:
			r.Lease = &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute}
		case backend.Borrow:
			r.Loan = &backend.Loan{ID: backend.LeaseID{1}, Seq: 1, Term: loanTerm}
		}
		d, err := p.do(r)
		p.must(err == nil && !d.Allowed, "%v: %+v %v", op, d, err)
		p.advance(loanTerm / 4)
		_, l, err := b.ask(0, 40, 30, b.lastLoan(10))
		p.must(err == nil && l.Units == 30 && l.Recalled && p.now+l.Ends.Microseconds() <= ended, "%v: %+v %v", op, l, err)
		_, l, err = b.ask(0, 20, 0, b.lastLoan(0))
		p.must(err == nil && l.Units == 10 && !l.Recalled, "%v: 10 are used, and 70 recalled: %+v %v", op, l, err)
		_, _, err = b.ask(0, 0, 0, b.lastLoan(0))
		p.must(err == nil, "%v: %v", op, err)
		p.advance(5 * time.Second)
		_, l, err = b.ask(0, 40, 0)
		p.must(err == nil && l.Units == 10, "%v: nothing was lent for a while: %+v %v", op, l, err)
		p.advance(5 * time.Second)
		_, l, err = b.ask(0, 20, 0)
		p.must(err == nil && l.Units == 20, "%v: %+v %v", op, l, err)
	}
}

func borrowsOnce(p *probe) {
	b := p.borrower("a", p.list(p.day(100)))
	b.lends(40, 40)
	before := p.states("a", b.list)
	_, _, err := b.again(10, 40, 0, b.lastLoan(10))
	p.must(errors.Is(err, backend.ErrNotHeld), "a Borrow that was sent again gave %v", err)
	p.unchanged("a", b.list, before)
}

func lentReset(p *probe) {
	b := p.borrower("a", p.list(p.day(100)))
	b.lends(40, 40)
	p.reset("a", b.list)
	p.asNew("a", b.list)
	c := p.borrower("a", b.list)
	c.lends(10, 10)
	_, l, err := b.ask(0, 0, 30, b.lastLoan(10))
	p.must(err == nil && l.Settled == backend.NotHeld && l.Units == 0, "%+v %v", l, err)
	p.used("a", b.list, 10)
}

func lentShadow(p *probe) {
	list := p.list(p.day(100))
	shadow := p.policy("shadow", 0, p.day(25))
	shadow.Shadow = true
	b := p.borrower("a", p.carried(join(list, []backend.Policy{shadow})...))
	if n := len(b.list); !b.list[n-1].Shadow || n < 2 {
		p.t.Skip("no unit of these algorithms is lent")
	}
	b.loan.Each = make([]int64, len(b.list))
	b.lends(40, 40)
	all := p.states("a", b.list)
	p.must(all[0].Used == 40 && all[len(all)-1].Used == 25, "%+v", all)
	p.must(b.loan.Each[0] == 40 && b.loan.Each[len(all)-1] == 25, "of 40 units %v were lent of the policies", b.loan.Each)
	b.lends(0, 0, b.lastLoan(30))
	all = p.states("a", b.list)
	p.must(all[0].Used == 30 && all[len(all)-1].Used == 25, "of 30 units 25 passed the shadow: %+v", all)
	lentBesideAWindow(p)
	p.needsOp(backend.Record)
	c := p.borrower("kept", b.list)
	c.loan.Each = make([]int64, len(c.list))
	c.lends(40, 40)
	_, err := p.do(request(backend.Record, "kept", c.list, 20))
	p.must(err == nil, "%v", err)
	d, l, err := c.ask(5, 40, 30, c.lastLoan(10))
	p.must(err == nil && d.Allowed && l.Units == 40, "%+v %+v %v", d, l, err)
	p.must(c.loan.Each[len(all)-1] == 15, "10 of 25 units are used, and 15 may be in use: %v", c.loan.Each)
}

// lentBesideAWindow: a shadow has a window and borrowers of its own. They end no loan, make no share
// less, and charge no unit that is kept.
func lentBesideAWindow(p *probe) {
	window := policy("window", algo.FixedWindow(algo.PerSecond(1000)))
	window.Shadow = true
	b := p.borrower("window", p.carried(policy("bucket", algo.TokenBucket(algo.PerDay(100), 100)), window))
	p.set(p.now - p.now%1_000_000 + 1_900_000)
	for range 3 {
		p.borrower("window", b.list[1:]).lends(1, 0)
	}
	_, l, err := b.ask(0, 40, 0)
	p.must(err == nil && l.Units == 40 && l.Borrowers == 1, "the share is less than without the shadow: %+v %v", l, err)
	p.must(l.Ends > loanTerm/2, "the loan is shorter than without the shadow: %+v %v", l, err)
	p.advance(loanTerm / 2)
	_, l, err = b.ask(0, 40, 35, b.lastLoan(5))
	p.must(err == nil && l.Settled == backend.Charged && l.Units == 40, "%+v %v", l, err)
	all := p.states("window", b.list)
	p.must(all[0].Used == 45 && all[0].Lent == 40, "5 units are used, and 40 lent: %+v", all)
}
