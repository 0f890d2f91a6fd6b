package shard

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/layer"
)

// reading is what sub-keys answered to one request.
type reading struct {
	k          *hotKey
	shares     []int // that were asked, in order
	answers    []layer.Answer
	each       []backend.State // one per policy for each share
	sent, told time.Duration   // before they were asked, and when they had answered
}

// read asks these sub-keys at once: in one round trip per node where next can. The
// answers have one array of states, since a key over 1,024 shares has as many.
func (k *hotKey) read(ctx context.Context, next backend.Store, r *backend.Request, shares []int,
	clock func() time.Duration) *reading {
	n := len(k.policies)
	f := &reading{k, shares, make([]layer.Answer, len(shares)), make([]backend.State, len(shares)*n), clock(), 0}
	rs := make([]backend.Request, len(shares))
	for at, i := range shares {
		rs[at] = *r
		rs[at].Sub, rs[at].Policies = k.sub(i), k.part(i)
		rs[at].Receipt, rs[at].Each = nil, f.states(at)
	}
	layer.DoAll(ctx, next, rs, f.answers)
	f.told = clock()
	return f
}

func (f *reading) states(at int) []backend.State {
	n := len(f.k.policies)
	return f.each[at*n : (at+1)*n : (at+1)*n]
}

// all returns every share.
func (k *hotKey) all() []int {
	shares := make([]int, len(k.subs))
	for i := range shares {
		shares[i] = i
	}
	return shares
}

// doubtful returns the shares that may have room for g. The others have none until
// an instant that is remembered, so a sum need not read them: of a saturated
// TokenBucket, where every share has its own instant, that is most.
func (k *hotKey) doubtful(g *backend.Group, now time.Duration) (shares []int) {
	for i := range k.subs {
		if k.avoids(i, now) || k.open(i, g, now) {
			shares = append(shares, i)
		}
	}
	return shares
}

// observe notes what a reading for g says, and reports whether it shows room for
// what was denied. A reading whose caller left says nothing of who did not answer.
func (f *reading) observe(g *backend.Group, left bool) (refuted bool) {
	for at, i := range f.shares {
		a := &f.answers[at]
		switch {
		case a.Err == nil:
			told := func() time.Duration { return f.told }
			refuted = f.k.observe(i, g, a.Decision.Allowed, f.states(at), f.sent, told) || refuted
		case layer.Undecided(a.Err):
			if !errors.Is(a.Err, backend.ErrUnavailable) { // what only reads counts nothing
				a.Err = backend.Wrap(backend.ErrUnavailable, errors.New(a.Err.Error()))
			}
			if !left {
				f.k.subs[i].avoided.Store(int64(f.told + avoidFor))
			}
		}
	}
	return refuted
}

// refused returns why the request itself was refused, nil where it was not: a refused
// request is not one that a share could not answer.
func (f *reading) refused() error {
	for at := range f.answers {
		if err := f.answers[at].Err; err != nil && !layer.Undecided(err) {
			return err
		}
	}
	return nil
}

// dead returns the shares that did not answer, and why the first of them did not.
func (f *reading) dead() (shares []int, err error) {
	for at, i := range f.shares {
		if a := &f.answers[at]; a.Err != nil {
			if shares = append(shares, i); err == nil {
				err = a.Err
			}
		}
	}
	return shares, err
}

// draw returns a sub-key that the reading shows with room for g, which was not seen
// without since; -1 where there is none.
func (f *reading) draw(g *backend.Group) int {
	from := rand.IntN(len(f.shares) + 1)
	for n := range f.shares {
		at := (from + n) % len(f.shares)
		i, a := f.shares[at], &f.answers[at]
		if a.Err == nil && a.Decision.Allowed && f.k.spare(i, g) >= 0 {
			return i
		}
	}
	return -1
}

// complete reports whether every sub-key was asked, and answered. Only then its sum
// is exact.
func (f *reading) complete() bool {
	dead, _ := f.dead()
	return len(f.shares) == len(f.k.subs) && len(dead) == 0
}

func (f *reading) total() *total {
	t := newTotal(f.k)
	for at := range f.answers {
		if f.answers[at].Err == nil {
			t.add(f.states(at))
		}
	}
	return t
}

// with sums what a reading says, and what is remembered of the shares that it left
// out, which are those that deny g.
func (f *reading) with(g *backend.Group) []backend.State {
	t, said := f.total(), make([]backend.State, len(f.k.policies))
	for i := range f.k.subs {
		if d := f.k.subs[i].denied.Load(); d != nil && !slices.Contains(f.shares, i) {
			d.tell(said, g, f.told)
			t.add(said)
		}
	}
	return t.states()
}

// total sums the states of a key's shares, of a sum and of what is remembered alike. The key passes a call again when the
// first share does. It is as new when the last one is. A share without states has
// no room.
type total struct {
	k      *hotKey
	sum    []backend.State // Used, Remaining and ResetAfter so far, one per policy
	retry  time.Duration   // after which the first of them lets the call pass
	shares int             // so far
}

func newTotal(k *hotKey) *total { return &total{k: k, sum: make([]backend.State, len(k.policies))} }

// add adds one share's states.
func (t *total) add(states []backend.State) {
	retry := time.Duration(0)
	for j := range states {
		s := &states[j]
		t.sum[j].Used += s.Used
		t.sum[j].Remaining += s.Remaining
		t.sum[j].ResetAfter = max(t.sum[j].ResetAfter, s.ResetAfter)
		retry = max(retry, s.RetryAfter)
	}
	if t.shares == 0 || retry < t.retry {
		t.retry = retry
		for j := range states {
			t.sum[j].RetryAfter = states[j].RetryAfter
		}
	}
	t.shares++
}

// states returns the states of the key's policies. Used and Remaining may be more
// than the limit together, while counts live of another limit: a share that holds
// more than its part takes nothing from the room of others.
func (t *total) states() []backend.State {
	for j := range t.sum {
		s, p := &t.sum[j], &t.k.policies[j]
		s.Policy, s.Counted, s.Limit = p.Name, true, p.Algorithm.Max()
		if t.shares < len(t.k.subs) {
			s.Used = s.Limit - s.Remaining
		}
	}
	return t.sum
}

// conclusion is that a key denies a call: every sub-key is remembered to be spent,
// or does not answer. It was sent when the first of the shares' denials was.
type conclusion struct {
	denial.Denial
	alike bool // the shares denied calls of the same costs
	dead  []int
}

// conclude returns what is remembered of g, nil where some sub-key may have room.
// Costs of 0 are those that no share's denial needs: each share's denial holds for
// all calls that cost its binding policy as much, so the key's holds for those that
// cost no less of any share's. It ends when the first of the shares' denials does.
func (k *hotKey) conclude(g *backend.Group, now time.Duration) *conclusion {
	own, ends := denial.Costs(g), now+denial.Longest
	v := &conclusion{Denial: denial.Denial{Costs: make([]int64, len(own)), Sent: now, Told: now}, alike: true}
	t, said := newTotal(k), make([]backend.State, len(own))
	for i := range k.subs {
		if k.avoids(i, now) {
			v.dead = append(v.dead, i)
			continue
		}
		d := k.subs[i].denied.Load()
		if d == nil || now >= d.until(g) {
			return nil
		}
		d.tell(said, g, now)
		t.add(said)
		ends, v.Sent = min(ends, d.until(g)), min(v.Sent, d.sent)
		v.Costs[d.by] = max(v.Costs[d.by], d.costs[d.by])
		v.alike = v.alike && slices.Equal(d.costs, own) // mutant: exact-verdict
	}
	v.States, v.Lasts = t.states(), ends-v.Sent
	return v
}
