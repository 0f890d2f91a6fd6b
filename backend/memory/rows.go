package memory

import (
	"bytes"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	codec "github.com/headgate-go/headgate/backend/internal/record"
	"github.com/headgate-go/headgate/backend/internal/rows"
)

// storedRows are rows.Rows: a store of one stripe, whose records are those of the rows that were
// put. A lease and a borrower have a row of their own, by the key and the ID.
type storedRows struct {
	store  *Store
	now    int64
	reader codec.Reader
	keys   map[rows.Place]*row
	text   []byte // scratch
}

func init() { rows.Register(func() rows.Rows { return newRows() }) }

// row is what is kept of one key.
//
// Its first entry is no count: the words are the numbers of the row itself.
type row struct {
	hash   hash
	text   []byte // as it was put
	put    numbers
	own    numbers
	counts []kept
}

// kept is a count that the row has, or that a request may have made.
type kept struct {
	id    identity
	until int64 // as it was put; 0: it was not
}

// numbers are those of a row, each in its place.
type numbers [4]int64

const (
	latest = iota // when the row was written last
	sums          // no count that has left had a greater sum of charges
	resets        // of the key, so that a lease of before the last one is known
	leased        // until when a lease of the key is kept: the row stays as long
)

func newRows() *storedRows {
	t := &storedRows{keys: map[rows.Place]*row{}}
	t.store = &Store{secrets: newSecrets(), maxKeys: 1 << 40, classes: newClasses()}
	// Identities are the same in all processes. Policies are named by whoever owns the rows.
	t.store.secrets[ofPolicies] = secret{0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB}
	t.store.clock.given = func() time.Time { return time.UnixMicro(t.now) }
	t.store.stripes = newStripes(perStripe, t.store.classes)
	return t
}

// Begin forgets all rows. The requests to come are decided at an instant.
func (t *storedRows) Begin(now int64) {
	s, mu := t.store, &t.store.stripes[0].mu
	for _, c := range *s.classes.list.Load() {
		c.kept.Store(0)
	}
	s.kept.Store(0)
	if mu.records.live = 0; len(mu.records.slots) > 1<<12 {
		mu.records = table{}
	}
	clear(mu.records.slots)
	clear(mu.many)
	mu.records.classes, mu.charged, mu.lent = nil, 0, nil
	mu.leases, mu.borrowers = leases{}, fading[borrower]{}
	clear(t.keys)
	t.now = now
}

// Latest returns when a row was written last, 0 if its text is not one.
func (t *storedRows) Latest(text []byte) int64 {
	var c codec.Count
	if t.reader.Open(text) != nil {
		return 0
	}
	if t.reader.Count(&c); len(c.Words) == 0 {
		return 0
	}
	return c.Words[latest]
}

// Put puts the row of a key, nil if there is none. An error says that it is no text of ours.
func (t *storedRows) Put(key rows.Place, text []byte) error {
	r := &row{hash: t.store.hash(&backend.Group{Key: key.Key, Sub: key.Sub}), text: text}
	if text != nil {
		if err := t.read(r); err != nil {
			return err
		}
	}
	t.keys[key] = r
	return nil
}

// read reads the row's text. Nothing is kept before all of it was read.
func (t *storedRows) read(r *row) error {
	var own codec.Count
	if err := t.reader.Open(r.text); err != nil {
		return err
	}
	t.reader.Count(&own)
	copy(r.put[:], own.Words)
	var counts []codec.Count
	for t.reader.More() {
		var c codec.Count
		t.reader.Count(&c)
		//mutant:row-of-another-kind
		if id := identity(c.ID); c.Many != id.manyWords() || !c.Many && len(c.Words) > fewWords {
			return codec.ErrGarbled
		}
		counts = append(counts, c)
	}
	if err := t.reader.Err(); err != nil {
		return err
	}
	r.own = r.put
	st := t.stripe()
	st.mu.charged = max(st.mu.charged, r.own[sums])
	st.mu.records.grow(len(counts))
	for i := range counts {
		t.insert(r, &counts[i])
	}
	return nil
}

// insert keeps a count of a row.
func (t *storedRows) insert(r *row, c *codec.Count) {
	id, st := identity(c.ID), t.stripe()
	h := r.hash.of(id)
	r.counts = append(r.counts, kept{id, c.Until})
	t.store.kept.Add(1)
	kept := st.mu.records.insert(h, 0)
	if kept.until = c.Until; !c.Many {
		copy(kept.few[:], c.Words)
	} else {
		if st.mu.many == nil {
			st.mu.many = map[hash][]int64{}
		}
		st.mu.many[h] = c.Words
	}
	if c.Lent != nil {
		st.setLent(h, c.Lent)
	}
}

func (t *storedRows) stripe() *stripe { return &t.store.stripes[0] }

// Do decides a request whose rows were put, and which Request.Check has passed.
func (t *storedRows) Do(r *backend.Request, d *backend.Decision) error {
	t.stripe().mu.calls = 0 // a sweep would remove counts that are idle
	for i := range 1 + len(r.And) {
		g := r.GroupAt(i)
		row := t.keys[rows.Place{Key: g.Key, Sub: g.Sub}]
		for j := range g.Policies {
			row.has(t.store.identityOf(&g.Policies[j], g.Sub), 0)
		}
	}
	err := t.store.do(r, d)
	if err == nil && r.Op == backend.Reset {
		t.reset(rows.Place{Key: r.Key, Sub: r.Sub})
	}
	return err
}

// has notes that the row may have a count.
func (r *row) has(id identity, until int64) {
	if !slices.ContainsFunc(r.counts, func(k kept) bool { return k.id == id }) {
		r.counts = append(r.counts, kept{id, until})
	}
}

// reset counts a Reset, by which the leases of the key are known that were not put.
func (t *storedRows) reset(key rows.Place) {
	//mutant:rows-of-leases-reset
	if r := t.keys[key]; r.own[leased] > t.now {
		r.own[resets]++
	}
}

// Row returns the text of a key's row, and until when it is needed. It is nil if the requests
// have not changed it.
func (t *storedRows) Row(key rows.Place) (text []byte, until int64) {
	r := t.keys[key]
	t.sum(r)
	//mutant:unchanged-row-not-written
	if t.encode(r, false); r.text == nil && r.empty(t) || bytes.Equal(t.text, r.text) {
		return nil, 0
	}
	r.own[latest] = t.now
	t.drop(r)
	until = t.encode(r, true)
	return bytes.Clone(t.text), max(until, r.own[leased])
}

// empty reports whether the row has neither a count nor a lease.
func (r *row) empty(t *storedRows) bool {
	return r.own[leased] == 0 && !slices.ContainsFunc(r.counts, func(k kept) bool {
		return t.stripe().mu.records.find(r.hash.of(k.id)) != nil
	})
}

// sum keeps the greatest sum of charges of a count that has left. A lease that it was charged by
// must not give back of a later one.
func (t *storedRows) sum(r *row) {
	for _, k := range r.counts {
		if k.until != 0 && t.stripe().mu.records.find(r.hash.of(k.id)) == nil {
			r.own[sums] = t.stripe().mu.charged
		}
	}
}

// drop removes the counts that are idle.
func (t *storedRows) drop(r *row) {
	r.counts = slices.DeleteFunc(r.counts, func(k kept) bool {
		found := t.stripe().mu.records.find(r.hash.of(k.id))
		lent := t.stripe().mu.lent[r.hash.of(k.id)]
		idle := found != nil && found.until <= t.now && (lent == nil || lent.Idle(t.now))
		if idle && k.id.kind().Sums() {
			r.own[sums] = max(r.own[sums], found.few[2])
		}
		return idle
	})
}

// encode makes the row's text, and returns until when its counts are needed. Without write
// each count keeps the end that was put. So the text is equal to the one that was put if the
// requests changed only such ends, such as a denial.
func (t *storedRows) encode(r *row, write bool) (until int64) {
	st := t.stripe()
	b := codec.AppendCount(codec.Begin(t.text[:0]), &codec.Count{Words: r.own[:]})
	for _, k := range r.counts {
		h := r.hash.of(k.id)
		found := st.mu.records.find(h)
		if found == nil {
			continue
		}
		if until = max(until, found.until); st.mu.lent[h] != nil {
			until = max(until, t.now+lentStays)
		}
		c := codec.Count{ID: uint64(k.id), Until: found.until, Many: k.id.manyWords(), Words: st.words(h, k.id, found), Lent: st.mu.lent[h]}
		if !write && k.until != 0 {
			c.Until = k.until
		}
		b = codec.AppendCount(b, &c)
	}
	t.text = codec.Seal(b, 0)
	return until
}

// lentStays is how long a row is kept at least that knows borrowers, in µs: for as long as they
// are remembered, and a recall.
const lentStays = 10_000_000

// The rows of leases and borrowers begin with what they are.
const (
	ofLease = 1 + iota
	ofSettlement
	ofBorrower
)

// PutLease puts the row of a lease of a key whose own row was put. An error says that it is no
// text of ours.
func (t *storedRows) PutLease(key rows.Place, id backend.LeaseID, text []byte) error {
	r, st := t.keys[key], t.stripe()
	at := r.hash.ofLease(id)
	if err := t.reader.Open(text); err != nil {
		return err
	}
	var own codec.Count
	switch t.reader.Count(&own); own.ID {
	case ofLease:
		var l codec.Lease
		t.reader.Lease(&l)
		if t.reader.Err() == nil {
			st.mu.leases.open.put(at, t.lease(r, &l, own.Until))
		}
	case ofSettlement:
		var s codec.Settlement
		t.reader.Settlement(&s)
		if t.reader.Err() == nil {
			st.mu.leases.settled.put(at, settlement{s.Attempt, s.Until})
		}
	default:
		return codec.ErrGarbled
	}
	return t.reader.Err()
}

// lease returns an open lease of a row. It was reset if the key was, since it was reserved.
func (t *storedRows) lease(r *row, of *codec.Lease, reserved int64) *lease {
	of.Key, of.Reset = uint64(r.hash), of.Reset || reserved != r.own[resets]
	for i := range of.Charges {
		r.has(identity(of.Charges[i].ID), 0)
	}
	return leaseOf(of, t.store.classes.at)
}

// Lease returns the text of a lease's row, and until when it is needed. It is nil if there is
// none. It must come before that of the key's own row, which stays as long.
func (t *storedRows) Lease(key rows.Place, id backend.LeaseID) (text []byte, until int64) {
	r, st := t.keys[key], t.stripe()
	at := r.hash.ofLease(id)
	if l := st.mu.leases.open.kept[at]; l != nil {
		r.own[leased] = max(r.own[leased], l.leaves())
		own, of := codec.Count{ID: ofLease, Until: r.own[resets]}, l.record()
		of.Key = 0 // a hash of this process
		return codec.Seal(codec.AppendLease(codec.AppendCount(codec.Begin(nil), &own), &of), 0), l.leaves()
	}
	if s, ok := st.mu.leases.settled.kept[at]; ok {
		of := codec.Settlement{Attempt: s.attempt, Until: s.until}
		return codec.Seal(codec.AppendSettlement(codec.AppendCount(codec.Begin(nil), &codec.Count{ID: ofSettlement}), &of), 0), s.until
	}
	return nil, 0
}

// PutBorrower puts the row of a borrower of a key. An error says that it is no text of ours.
func (t *storedRows) PutBorrower(key rows.Place, id backend.LeaseID, text []byte) error {
	if err := t.reader.Open(text); err != nil {
		return err
	}
	var own codec.Count
	if t.reader.Count(&own); own.ID != ofBorrower {
		return codec.ErrGarbled
	}
	var w codec.Borrower
	if t.reader.Borrower(&w); t.reader.Err() != nil {
		return t.reader.Err()
	}
	t.stripe().mu.borrowers.put(t.keys[key].hash.ofLease(id), borrower{w})
	return nil
}

// Borrower returns the text of a borrower's row, and until when it is needed. It is nil if there
// is none.
func (t *storedRows) Borrower(key rows.Place, id backend.LeaseID) (text []byte, until int64) {
	b, ok := t.stripe().mu.borrowers.kept[t.keys[key].hash.ofLease(id)]
	if !ok {
		return nil, 0
	}
	return codec.Seal(codec.AppendBorrower(codec.AppendCount(codec.Begin(nil), &codec.Count{ID: ofBorrower}), &b.Borrower), 0), b.Until
}
