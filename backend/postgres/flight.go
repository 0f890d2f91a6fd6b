package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/rows"
	"github.com/headgate-go/headgate/internal/without"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A flight decides calls in one transaction, which is two flushes:
//
//		begin, the timeouts, insert what is missing, lock, read leases, the clock ─► decide ─► write, commit
//
//	  - The server bounds how long the rows are locked: for the rest of the budget, and for half of
//	    a budget while it waits for this process.
//	  - Until the second flush nothing can be counted. So the first one may fail and be sent
//	    again, for as long as there is time.
//	  - An answer to commit that is lost leaves the charges in doubt. An error of the server before
//	    that shows that nothing was counted.
//	  - If nothing has changed, the transaction is undone: a denial writes nothing, and rows that
//	    were inserted for it go.
type flight struct {
	store  *Store
	rows   rows.Rows
	calls  []*call
	keys   map[string]*key
	ids    []string // of keys, sorted when the flight begins
	held   []held   // leases and borrowers that the calls name
	until  time.Time
	writes bool // a call is no Peek
	update struct {
		ids, data [][]byte
		expires   []int64
	}
	keep struct {
		ids, held, data [][]byte
		expires         []int64
	}
	remove [][]byte
}

// key is a key of a flight.
type key struct {
	name rows.Place
	data []byte // of its row
	bad  error  // the row is not ours
}

// held is a lease or a borrower of a key.
type held struct {
	key  string // the row's
	lent bool   // it is a borrower
	id   backend.LeaseID
	data []byte // of its row; nil: it has none
}

func (h *held) rowID() string {
	if h.lent {
		return borrowerID(h.id)
	}
	return leaseID(h.id)
}

func (f *flight) reset() {
	clear(f.calls)
	f.calls, f.ids, f.held, f.writes, f.until = f.calls[:0], f.ids[:0], f.held[:0], false, time.Time{}
	if f.keys == nil {
		f.keys = map[string]*key{}
	}
	clear(f.keys)
}

// join makes the call one of the flight.
func (f *flight) join(c *call, busy map[string]struct{}) {
	f.calls = append(f.calls, c)
	f.writes = f.writes || c.Op != backend.Peek
	if f.until.IsZero() || c.deadline.Before(f.until) {
		f.until = c.deadline
	}
	for i, id := range c.ids {
		g := c.GroupAt(i)
		if f.keys[id] == nil {
			f.keys[id], busy[id] = &key{name: rows.Place{Key: g.Key, Sub: g.Sub}}, struct{}{}
			f.ids = append(f.ids, id)
		}
		if g.Lease != nil && c.Op.Leases() {
			f.hold(held{key: id, id: g.Lease.ID})
		}
	}
	if c.Op == backend.Borrow {
		f.hold(held{key: c.ids[0], id: c.Loan.ID, lent: true})
	}
}

func (f *flight) hold(h held) {
	if !slices.ContainsFunc(f.held, func(o held) bool { return o.key == h.key && o.id == h.id && o.lent == h.lent }) {
		f.held = append(f.held, h)
	}
}

// run decides the calls and answers them.
func (f *flight) run() {
	slices.Sort(f.ids)
	s := f.store
	leave, err := s.shared.Enter(s.opts.Name)
	if err != nil {
		s.probe()
		f.refuse(backend.Wrap(backend.ErrUnavailable, err))
		return
	}
	began := time.Now()
	err = f.transact()
	leave(outcome(err))
	if err == nil {
		s.shared.Batch(backend.Batch{Node: s.opts.Name, Calls: len(f.calls), Keys: len(f.ids)}, time.Since(began))
		s.swept(len(f.ids))
	}
}

// refuse answers the calls that have no answer: nothing was counted.
func (f *flight) refuse(err error) {
	for _, c := range f.calls {
		if c != nil && c.state.Load() != complete {
			c.answer(err)
		}
	}
}

// transact makes the transaction, and another one if that may help. Each call has its answer
// when it returns.
func (f *flight) transact() error {
	ctx, cancel := context.WithDeadline(context.Background(), f.until)
	defer cancel()
	for tries := 0; ; tries++ {
		conn, err := f.store.pool.Acquire(ctx)
		if err != nil {
			err = unavailable(err)
			f.refuse(err)
			return err
		}
		now, err := f.lock(ctx, conn)
		if err == nil {
			err = f.decide(ctx, conn, now)
			conn.Release() // one within a transaction is closed by that
			return err
		}
		conn.Release()
		//mutant:postgres-again
		if !again(err) || ctx.Err() != nil || tries > maxTries {
			err = unavailable(err)
			f.refuse(err)
			return err
		}
	}
}

// maxTries is how often a transaction is tried again that certainly did nothing.
const maxTries = 20

// decide decides the calls, writes what they have changed, and answers them.
func (f *flight) decide(ctx context.Context, conn *pgxpool.Conn, now int64) error {
	f.rows.Begin(f.instant(now))
	f.put()
	done := f.calls[:0]
	for _, c := range f.calls {
		if err := f.corrupt(c); err != nil {
			c.answer(err)
		} else if c.decides() {
			c.err = f.rows.Do(&c.Request, &c.decision)
			done = append(done, c)
		}
	}
	f.calls = done
	f.changes()
	var err error
	if f.writes && len(f.update.ids)+len(f.keep.ids) > 0 {
		err = f.commit(ctx, conn)
	}
	for _, c := range f.calls {
		switch {
		case err == nil:
			c.answer(c.err)
		case errors.Is(err, backend.ErrPerhapsCounted):
			c.answer(c.doubt(err))
		default:
			c.answer(err)
		}
	}
	if f.writes && len(f.update.ids)+len(f.keep.ids) == 0 {
		_, _ = conn.Exec(ctx, "rollback")
	}
	return err
}

// doubt returns what is known of a call whose transaction may have been committed. One that was
// denied, or only looked, was not counted.
func (c *call) doubt(err error) error {
	if c.err != nil {
		return c.err
	}
	//mutant:denied-not-in-doubt
	if c.Op == backend.Peek || c.Op.Decides() && !c.decision.Allowed {
		return backend.Wrap(backend.ErrUnavailable, without.Match(err, backend.ErrPerhapsCounted))
	}
	return err
}
