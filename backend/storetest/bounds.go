package storetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/oracle"
)

const worst = "no trailing window ever holds more than the algorithm's worst"

// bounds is traffic that is made to break limits. The admitted charges are held to
// the bound that each algorithm states, which needs SetNow.
var bounds = []sentence{{"Storm", storms, worst}}

var saturated = []sentence{{"Saturated", saturate, "BucketedWindow of B buckets as wide as ceil(W / B) admits " +
	"at least W / ((B+1) * width) of its limit"}}

func storms(p *probe) {
	p.needsClock()
	for i, l := range []algo.Limit{algo.Per(5, 10*sec), algo.PerMinute(100), algo.Per(17, 7*sec+13*tick)} {
		p.storm(fmt.Sprint(i), p.list(l), l)
	}
	for _, b := range []int64{2, 3, 7, 61} { // 7 and 61 don't divide the period: the oldest is partly in the window
		if l := algo.Per(17, 7*sec+13*tick); p.shape.name == "BucketedWindow" {
			p.storm(fmt.Sprint("buckets ", b), p.carried(policy("bucketed", algo.BucketedWindow(l, b))), l)
		}
	}
}

// storm takes at the instants where counts change hands, just before them
// and just after, at any cost, and at random. A twentieth of both outcomes is
// the least that makes it a storm: all denied breaks no bound, all passed tests
// none. The limit of a spread key is too large for so many denials.
func (p *probe) storm(key string, list []backend.Policy, l algo.Limit) {
	count, calls := map[bool]int{}, steps(120, 400) // some dozens of windows of the smaller limits
	for range calls {
		most := l.Events / p.k
		some := 1 + p.dice.Int64N(most)
		d := p.take(key, list, []int64{1, 1, 1, 1, 1, 1, some, some, some, most}[p.dice.IntN(10)])
		count[d.Allowed]++
		if !d.Allowed || p.dice.IntN(3) == 0 {
			p.advance(p.wait(l.Period, d))
		}
	}
	least := calls / 20
	p.must(count[true] > least && (p.k > 1 || count[false] > least), "too few takes passed, or were denied: %v", count)
}

// wait is how long until the next call of a storm. It is to a window's or a bucket's
// boundary, to what the store itself says, or to anywhere. The random jump is
// short, so that most calls fall into a window that others have filled.
func (p *probe) wait(period time.Duration, d backend.Decision) time.Duration {
	until := func(us int64) time.Duration { return time.Duration(us-p.now%us) * tick } // its next multiple
	edge := time.Duration(p.dice.IntN(3)-1) * tick                                     // before, at, after
	return max(0, edge+[]time.Duration{
		until(period.Microseconds()), until(period.Microseconds() / 10),
		time.Duration(p.dice.Int64N(int64(period) / 4)), d.ResetAfter, d.RetryAfter, d.RetryAfter,
	}[p.dice.IntN(6)])
}

// saturate asks for twice the limit, evenly, for six windows or more. A caller that
// takes each unit the instant it is free falls into step with the buckets and
// gets the whole limit. That would hide a bound that is too strict.
func saturate(p *probe) {
	p.needsClock()
	for _, b := range []int64{2, 7, 10} {
		l := algo.Per(20, 10*sec+7*tick)
		list, key := p.carried(policy("bucketed", algo.BucketedWindow(l, b))), fmt.Sprint(b)
		start, passed := p.now, int64(0)
		for range int64(steps(6, 20)) * 2 * l.Events {
			if p.take(key, list, 1).Allowed {
				passed++
			}
			p.advance(l.Period / time.Duration(2*l.Events))
		}
		width := (l.Period.Microseconds() + b - 1) / b
		p.must(passed*(b+1)*width >= l.Events*(p.now-start),
			"%d buckets admitted %d in %v", b, passed, time.Duration(p.now-start)*tick)
	}
}

// oddRates saturates a TokenBucket at rates that are hard to meet, for a virtual
// minute in large costs and a shorter while in single units. What passes must not
// be more than burst + rate*t, nor less than 99.9 % of it. No number of microseconds
// divides the rates, or they are several units per microsecond, with about two
// seconds' burst. The last is a unit every 2.6 ms over a period so long that products
// need more than 53 bits. It needs SetNow. A store without TokenBucket skips it.
func oddRates() (cases []sentence) {
	for _, a := range []algo.Algorithm{
		algo.TokenBucket(algo.PerSecond(7), 700),
		algo.TokenBucket(algo.PerSecond(30_000), 60_000),
		algo.TokenBucket(algo.PerSecond(700_000), 1_400_000),
		algo.TokenBucket(algo.PerSecond(3_000_000), 6_000_000),
		algo.TokenBucket(algo.Per(1_000_000_000, 30*24*time.Hour), 1000),
	} {
		cases = append(cases, sentence{fmt.Sprint(a.Limit()), func(p *probe) { saturates(p, a, steps(400, 2000)) },
			"rates are exact: never more than burst + rate*t, and at least 99.9 % of it"})
	}
	return cases
}

// saturates takes all that there is, step by step for a minute, and then single
// units as soon as there is one. Rounding that grows with the time between calls
// shows in large costs, and rounding per call in single units. The burst of the
// latter goes first, so that it can't hide a rate that is too slow. Their margin
// adds the unit that has not leaked yet when the calls end, and what leaks in the
// last microsecond.
func saturates(p *probe, a algo.Algorithm, calls int) {
	p.needsClock()
	list, start, passed := p.carried(policy("rate", a)), p.now, a.Max()
	p.passes("bulk", list, passed)
	for i := range int64(calls / 4) { // two calls per step
		p.set(start + (i+1)*60_000_000/int64(calls/4))
		if n := p.peek("bulk", list, 0).Remaining; n > 0 && p.take("bulk", list, n).Allowed {
			passed += n
		}
	}
	want := a.Max() + leaks(&a, p.now-start)
	p.must(passed <= want && passed >= want/1000*999, "%v passed %d in a minute, want %d", &a, passed, want)

	start, passed = p.now, 0
	p.passes("single", list, a.Max())
	for range calls/2 - 1 {
		d := p.take("single", list, 1)
		if d.Allowed {
			passed++
		}
		p.advance(d.RetryAfter)
	}
	want = leaks(&a, p.now-start)
	p.must(passed <= want && passed >= want*999/1000-1-leaks(&a, 1), "%v passed %d single units in %v, want %d",
		&a, passed, time.Duration(p.now-start)*tick, want)
}

// leaks returns how many whole units leak in a time, of hours at most: the
// product would overflow beyond.
func leaks(a *algo.Algorithm, us int64) int64 {
	return us * a.Limit().Events / a.Limit().Period.Microseconds()
}

// ledger keeps an oracle for each policy of each key, and gives it every charge
// that passed, where the harness sets the store's clock. It groups charges as the contract does, by name and
// identity, so that a limit spent through two lists is one account.
type ledger struct {
	mu struct {
		sync.Mutex
		rows map[row]*account
	}
}

type row struct {
	key, sub, policy string
	identity         rule.Identity
}

type account struct {
	algo.Algorithm
	*oracle.Oracle
	changed bool // the numbers changed meanwhile: no algorithm states a bound for that
}

// note records what a request did that was decided at an instant of the store's clock. A
// Reset or a Return starts a new account: its charges may exceed the bound together with those
// before it.
func (l *ledger) note(at int64, r *backend.Request, d *backend.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from, to := r.Alternative(d.At)
	for i := from; i < to; i++ {
		g := r.GroupAt(i)
		for j, q := range g.Policies {
			if q.Shadow { // of which a take that passed may have charged nothing
				continue
			}
			count := row{g.Key, g.Sub, q.Name, q.Algorithm.Identity()}
			switch acc := l.mu.rows[count]; {
			case r.Op == backend.Reset, r.Op == backend.Return:
				delete(l.mu.rows, count)
			case r.Op == backend.Take && d.Allowed:
				if acc == nil {
					acc = &account{Algorithm: q.Algorithm, Oracle: oracle.New(q.Algorithm)}
					l.mu.rows[count] = acc
				}
				acc.changed = acc.changed || acc.Algorithm != q.Algorithm
				acc.Oracle.Add(at, g.CostOf(j))
			}
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
