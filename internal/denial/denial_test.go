package denial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestAnswers: a denial is repeated with the times that are left, until the
// store would let the call pass.
func TestAnswers(t *testing.T) {
	f, s := denied(t, 400*time.Millisecond, policies(2), 3)
	f.advance(100*time.Millisecond + 1)
	each := make([]backend.State, 2)
	r := take("k", policies(2), 3)
	r.Each = each
	d := ask(t, s, r)
	require.Equal(t, backend.Decision{
		Source: backend.FromDenyCache,
		State:  backend.State{Policy: "b", Known: backend.Estimated, Limit: 20, Used: 10, Remaining: 10, RetryAfter: 300*time.Millisecond + time.Microsecond, ResetAfter: 59900 * time.Millisecond},
	}, d)
	require.Equal(t, backend.State{Policy: "a", Known: backend.Estimated, Limit: 10, Used: 10, RetryAfter: 300 * time.Millisecond, ResetAfter: 59900 * time.Millisecond}, each[0])
	require.Equal(t, d.State, each[1])
	f.advance(300*time.Millisecond + time.Microsecond - 2)
	require.True(t, cached(t, s, take("k", policies(2), 3)))
	f.advance(1)
	require.False(t, cached(t, s, take("k", policies(2), 3)), "it would pass now")
	require.EqualValues(t, 2, s.Answered())
}

// TestStandsForASecond: whatever the store said.
func TestStandsForASecond(t *testing.T) {
	for _, c := range []struct{ stand, want time.Duration }{{Longest, time.Second}, {time.Hour, time.Second}, {50 * time.Millisecond, 50 * time.Millisecond}} {
		f := &fake{do: denies(time.Hour)}
		s := f.wrapper(c.stand)
		require.False(t, cached(t, s, take("k", one, 1)))
		f.advance(c.want*3/4 - 1)
		require.True(t, cached(t, s, take("k", one, 1)))
		f.advance(c.want/4 + 1)
		require.False(t, cached(t, s, take("k", one, 1)))
	}
	f, _ := denied(t, time.Hour, one, 1)
	require.False(t, cached(t, f.wrapper(-1), take("k", one, 1)), "off")
	f.advance(100 * time.Millisecond)
	require.False(t, cached(t, f.wrapper(100*time.Millisecond), take("k", one, 1)), "another's entry is too old for this one")
}

// TestLentUnitsAreAskedFor: the store counts units that another process holds as used, and
// that one may give them back at any time. So a denial that counts lent units is asked for
// again within the lease; where no store decides, it stands as any other. One that counts
// none holds as without borrowing.
func TestLentUnitsAreAskedFor(t *testing.T) {
	lent := func(key string) backend.Request {
		r := take(key, one, 1)
		r.Borrow = 100 * time.Millisecond
		return r
	}
	f := &fake{do: func(r *backend.Request) (backend.Decision, error) {
		d, err := denies(time.Hour)(r)
		d.Lent = 3
		return d, err
	}}
	s := f.wrapper(time.Second)
	require.False(t, cached(t, s, lent("k")))
	f.advance(25*time.Millisecond - 1)
	require.True(t, cached(t, s, lent("k")))
	f.advance(1)
	require.False(t, cached(t, s, lent("k")))
	f.advance(time.Second)
	r := lent("k")
	require.True(t, s.Stands(&r, new(backend.Decision)))

	f.do = denies(time.Hour)
	require.False(t, cached(t, s, lent("firm")))
	f.advance(time.Second / 2)
	require.True(t, cached(t, s, lent("firm")))
}

// TestLentDenialBesideLocalUnits: what denied a request that is sent although this process may have
// local units, or may have some but too few, answers none that these may decide. Calls without local
// units are answered by the denial of one of them, and by that of the others too.
func TestLentDenialBesideLocalUnits(t *testing.T) {
	two := policies(2)
	f := &fake{do: func(r *backend.Request) (backend.Decision, error) {
		d, err := denies(time.Hour)(r)
		d.Lent = 3
		for i := range r.Each {
			r.Each[i].Lent = 3
		}
		return d, err
	}}
	s := f.wrapper(time.Second)
	borrows := func(r backend.Request) backend.Request {
		r.Borrow = time.Second
		return r
	}
	reserve := borrows(take("reserve", two, 1))
	reserve.Op, reserve.Lease = backend.Reserve, &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute}
	unequal := borrows(take("unequal", two, 0))
	unequal.Costs = []int64{1, 5}
	all := borrows(take("all", two, 1))
	all.And = []backend.Group{{Key: "other", Policies: two, Cost: 1, Borrow: time.Second}}
	later := borrows(take("later", two, 1))
	later.Else = true
	for _, r := range []backend.Request{reserve, take("plain", two, 1), borrows(upTo("up to", two, 5)), unequal, all, later} {
		require.False(t, cached(t, s, r), r.Key)
		require.True(t, cached(t, s, r), r.Key)
		n := r.CostOf(1) // of the policy that binds
		require.False(t, cached(t, s, borrows(take(r.Key, two, n))), "%s: the process may have %d units", r.Key, n)
		require.True(t, cached(t, s, borrows(take(r.Key, two, n))), r.Key)
		require.True(t, cached(t, s, r), r.Key)
	}
	f.do = denies(time.Hour)
	reserve.Key = "firm"
	require.False(t, cached(t, s, reserve))
	require.True(t, cached(t, s, borrows(take("firm", two, 1))), "no unit is lent")
}

// TestAFailedRefresh prolongs nothing: a denial that is older than the limiter's time
// answers no call.
func TestAFailedRefresh(t *testing.T) {
	f := &fake{do: denies(time.Hour)}
	s := f.wrapper(100 * time.Millisecond)
	require.False(t, cached(t, s, take("k", one, 1)))
	f.advance(100 * time.Millisecond)
	f.do = func(*backend.Request) (d backend.Decision, _ error) { return d, backend.ErrUnavailable }
	_, err := layer.Ask(context.Background(), s, take("k", one, 1))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	f.do = denies(time.Hour)
	require.False(t, cached(t, s, take("k", one, 1)))
}

// TestCountsFromTheSending: the trip's time is not added to the entry's; what
// callers are told is not early either.
func TestCountsFromTheSending(t *testing.T) {
	f := &fake{}
	f.do = func(r *backend.Request) (backend.Decision, error) {
		f.advance(30 * time.Millisecond)
		return denies(100 * time.Millisecond)(r)
	}
	s := f.wrapper(Longest)
	require.False(t, cached(t, s, take("k", one, 1)))
	f.advance(69 * time.Millisecond)
	require.Equal(t, 31*time.Millisecond, ask(t, s, take("k", one, 1)).RetryAfter)
	f.advance(time.Millisecond)
	require.False(t, cached(t, s, take("k", one, 1)))
}

// TestCosts: who costs at least as much of the policy that bound, "b", is denied too.
func TestCosts(t *testing.T) {
	_, s := denied(t, time.Second, policies(2), 3)
	for _, c := range []struct {
		costs []int64
		want  bool
	}{{[]int64{3, 3}, true}, {[]int64{4, 3}, true}, {[]int64{3, 20}, true}, {[]int64{2, 20}, true}, {[]int64{10, 1}, false}} {
		_, s := denied(t, time.Second, policies(2), 3)
		r := take("k", policies(2), 0)
		r.Costs = c.costs
		require.Equal(t, c.want, cached(t, s, r), c.costs)
	}
	require.False(t, cached(t, s, take("k", policies(2), 2)))
	require.True(t, cached(t, s, take("k", policies(2), 2)))
	require.True(t, cached(t, s, take("k", policies(2), 3)))
}

// TestStatesAreTheStores: a denial that was noted without the states of all policies
// answers no call that wants them. The policy that bound, "b", is known.
func TestStatesAreTheStores(t *testing.T) {
	f := &fake{do: denies(time.Second)}
	s, all := f.wrapper(Longest), take("k", policies(2), 3)
	all.Each = make([]backend.State, 2)
	require.False(t, cached(t, s, take("k", policies(2), 3)))
	require.True(t, cached(t, s, take("k", policies(2), 3)))
	cheap := take("k", policies(2), 0)
	cheap.Costs = []int64{2, 3}
	require.True(t, cached(t, s, cheap))
	require.False(t, cached(t, s, all))
	require.True(t, cached(t, s, all))
	cheap.Costs = []int64{3, 2}
	require.False(t, cached(t, s, cheap))
	f.do = leaves(3)
	f.advance(Longest)
	require.True(t, ask(t, s, all).Allowed)
}

// TestEqualPolicies: same names, algorithms, order. What they do on failure
// does not matter.
func TestEqualPolicies(t *testing.T) {
	two := policies(2)
	change := func(f func(*backend.Policy)) []backend.Policy {
		ps := policies(2)
		f(&ps[1])
		return ps
	}
	reversed := policies(2)
	slices.Reverse(reversed)
	for _, c := range []struct {
		name string
		ps   []backend.Policy
		want bool
	}{
		{"equal", policies(2), true},
		{"failure mode", change(func(p *backend.Policy) { p.OnFailure = backend.FailOpen }), true},
		{"limit", change(func(p *backend.Policy) { p.Algorithm = algo.TokenBucket(algo.PerSecond(10), 21) }), false},
		{"name", change(func(p *backend.Policy) { p.Name = "c" }), false},
		{"order", reversed, false},
		{"fewer", two[:1], false},
		{"more", policies(3), false},
	} {
		_, s := denied(t, time.Second, two, 1)
		require.Equal(t, c.want, cached(t, s, take("k", c.ps, 1)), c.name)
	}
	_, s := denied(t, time.Second, two, 1)
	require.False(t, cached(t, s, take("K", two, 1)), "another key")
	require.False(t, cached(t, s, take("k", policies(3), 1)))
	require.True(t, cached(t, s, take("k", policies(3), 1)), "lists don't replace one another")
	require.True(t, cached(t, s, take("k", two, 1)))
}

// TestOnlyDenialsOfTheStore enter, and only of takes.
func TestOnlyDenialsOfTheStore(t *testing.T) {
	say := func(d backend.Decision, err error) func(*backend.Request) (backend.Decision, error) {
		return func(*backend.Request) (backend.Decision, error) { return d, err }
	}
	wait := backend.State{RetryAfter: time.Second}
	for name, do := range map[string]func(*backend.Request) (backend.Decision, error){
		"a pass":         leaves(0),
		"fail closed":    say(backend.Decision{State: wait, Source: backend.FromFailClosed, Err: backend.ErrUnavailable}, nil),
		"local":          say(backend.Decision{State: wait, Source: backend.FromFailLocal, Err: backend.ErrUnavailable}, nil),
		"without a wait": say(backend.Decision{}, nil),
		"with a reason":  say(backend.Decision{State: wait, Err: backend.ErrUnavailable}, nil),
		"an error":       say(backend.Decision{State: wait}, backend.ErrUnavailable),
	} {
		f := &fake{do: do}
		s := f.wrapper(Longest)
		for range 3 {
			_, _ = layer.Ask(context.Background(), s, take("k", one, 1))
		}
		require.EqualValues(t, 3, f.asked.Load(), name)
	}
	f, s := denied(t, time.Second, one, 1)
	peek := take("k", one, 1)
	peek.Op = backend.Peek
	require.False(t, cached(t, s, peek), "a peek asks for the truth")
	require.False(t, cached(t, f.wrapper(Longest), func() backend.Request { p := peek; p.Key = "p"; return p }()))
	require.False(t, cached(t, s, take("p", one, 1)), "and is not remembered")
}

// TestHidesNoError: a wrong call is wrong on a denied key too.
func TestHidesNoError(t *testing.T) {
	_, s := denied(t, time.Second, policies(2), 1)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	var invalid *backend.InvalidError
	_, err := layer.Ask(context.Background(), s, take("k", policies(2), 11))
	require.ErrorIs(t, err, backend.ErrNeverAdmissible)
	_, err = layer.Ask(gone, s, take("k", policies(2), 1))
	require.ErrorIs(t, err, context.Canceled)
	for _, spoil := range []func(*backend.Request){
		func(r *backend.Request) { r.Cost = -1 },
		func(r *backend.Request) { r.Policies = nil },
		func(r *backend.Request) { r.Costs = []int64{1} },
		func(r *backend.Request) { r.Costs = []int64{1, 1, 1} },
		func(r *backend.Request) { r.Each = make([]backend.State, 1) },
	} {
		r := take("k", policies(2), 1)
		spoil(&r)
		_, err = layer.Ask(context.Background(), s, r)
		require.ErrorAs(t, err, &invalid)
	}
	several := take("k", policies(2), 1)
	several.And = slices.Repeat([]backend.Group{several.Group}, able.Keys)
	_, err = layer.Ask(context.Background(), s, several)
	require.ErrorIs(t, err, backend.ErrUnsupported)
	var f *fake
	f, s = denied(t, time.Second, policies(2), 1)
	require.NoError(t, f.Close()) // as its user does, past the wrapper
	_, err = layer.Ask(context.Background(), s, take("k", policies(2), 1))
	require.ErrorIs(t, err, backend.ErrClosed)
}

// TestClose: a store that does not tell is closed through the wrapper.
func TestClose(t *testing.T) {
	f, h := &fake{do: denies(time.Hour)}, &layer.Shared{}
	s := New(f, h, Longest)
	require.False(t, cached(t, s, take("k", one, 1)))
	require.True(t, cached(t, s, take("k", one, 1)), "on the monotonic clock")
	require.NoError(t, s.Close())
	_, err := layer.Ask(context.Background(), s, take("k", one, 1))
	require.ErrorIs(t, err, backend.ErrClosed)
}

// TestForgets: what this process does to a key shows at once, whichever
// wrapper it is done through, and a denial on its way is from before.
func TestForgets(t *testing.T) {
	for _, op := range []backend.Op{backend.Reset, backend.Settle} {
		f, s := denied(t, time.Second, one, 1)
		off := f.wrapper(-1)
		r := settle("k", one, 1, 0)
		if r.Op = op; op == backend.Reset {
			r.Lease = nil
		}
		_, err := layer.Ask(context.Background(), off, r)
		require.NoError(t, err)
		require.False(t, cached(t, s, take("k", one, 1)), op)
		require.True(t, cached(t, s, take("k", one, 1)))
		r.Op, r.And, r.Key, r.Lease = backend.Take, []backend.Group{{Key: "k"}}, "other", nil
		_, _ = layer.Ask(context.Background(), s, r)
		require.True(t, cached(t, s, take("k", one, 1)), "a take of several keys gives nothing back")
	}
}

// TestForgetsByKey: what gives units of one key back says nothing of the others, of which a
// busy process settles thousands a second.
func TestForgetsByKey(t *testing.T) {
	_, s := denied(t, time.Hour, one, 1)
	other := beside(s, "k")
	require.False(t, cached(t, s, take(other, one, 1)))
	for _, r := range []backend.Request{{Op: backend.Reset, Group: take(other, one, 0).Group}, settle(other, one, 1, 0)} {
		require.True(t, cached(t, s, take(other, one, 1)))
		ask(t, s, r)
		require.True(t, cached(t, s, take("k", one, 1)), r.Op)
		require.True(t, stands(s, take("k", one, 1)), r.Op)
		require.False(t, cached(t, s, take(other, one, 1)), r.Op)
	}
}

// TestSettlementsThatGiveNothingBack end no denial: those at the estimate and above it, of a
// slot, by a shadow's policy, and those that no store has counted. The estimate of an ID of the
// caller's may have been greater.
func TestSettlementsThatGiveNothingBack(t *testing.T) {
	slots := backend.Policy{Name: "slots", Algorithm: algo.InFlight(9), OnFailure: backend.FailClosed}
	shadow := one[0]
	shadow.Name, shadow.Shadow = "shadow", true
	list := []backend.Policy{one[0], slots, shadow}
	fails := func(*backend.Request) (d backend.Decision, _ error) { return d, backend.ErrUnavailable }
	for _, c := range []struct {
		name   string
		actual []int64
		do     func(*backend.Request) (backend.Decision, error)
		ends   bool
	}{
		{"the estimate", []int64{3, 3, 3}, leaves(0), false},
		{"more", []int64{4, 3, 3}, leaves(0), false},
		{"a slot and a shadow", []int64{3, 0, 0}, leaves(0), false},
		{"less", []int64{2, 3, 3}, leaves(0), true},
		{"all", nil, leaves(0), true},
		{"all, uncounted", nil, fails, false},
		{"all, of a lost Reserve", nil, leaves(0), true},
		{"the estimate of a caller's ID", []int64{3, 3, 3}, leaves(0), true},
	} {
		f, s := denied(t, time.Hour, one, 3)
		f.do = c.do
		r := settle("k", list, 3, c.actual...)
		r.Lease.Unresolved = c.name == "all, of a lost Reserve"
		r.Lease.Named = c.name == "the estimate of a caller's ID"
		_, err := layer.Ask(context.Background(), s, r)
		require.Equal(t, c.name == "all, uncounted", err != nil, c.name)
		require.Equal(t, !c.ends, stands(s, take("k", one, 3)), c.name)
	}
}

// TestForgetsWhatIsOnItsWay: a denial that was decided before a reset and
// arrives after it.
func TestForgetsWhatIsOnItsWay(t *testing.T) {
	f := &fake{}
	s := f.wrapper(Longest)
	reset := take("k", one, 1)
	reset.Op = backend.Reset
	f.do = func(r *backend.Request) (backend.Decision, error) {
		d, err := denies(time.Second)(r)
		f.do = leaves(9)
		ask(t, s, reset)
		return d, err
	}
	require.False(t, ask(t, s, take("k", one, 1)).Allowed)
	require.True(t, ask(t, s, take("k", one, 1)).Allowed, "the denial is from before the reset")

	f.do = func(r *backend.Request) (backend.Decision, error) { // the server has not reset yet
		f.do = denies(time.Second)
		require.False(t, cached(t, s, take("k", one, 1)))
		require.True(t, cached(t, s, take("k", one, 1)))
		f.do = leaves(9)
		return f.do(r)
	}
	ask(t, s, reset)
	require.True(t, ask(t, s, take("k", one, 1)).Allowed, "what came in between is from before the reset")
}

// TestForgetsBesideNote: a denial from before a change does not hold after it, whichever of
// the two comes first.
func TestForgetsBesideNote(t *testing.T) {
	s := (&fake{}).wrapper(Longest)
	r := take("k", one, 1)
	for range 20_000 {
		at, begin, done := s.cache.At("k"), make(chan bool), make(chan bool)
		generation := at.Generation()
		go func() {
			<-begin
			s.cache.Forget("k")
			close(done)
		}()
		close(begin)
		at.Note(&r.Group, NewDenial(&r.Group, []backend.State{{RetryAfter: time.Hour}}, s.cache.Now(), s.cache.Now()), 1, generation)
		<-done
		require.Nil(t, at.find(&r.Group, s.cache.Now(), Longest))
		require.False(t, stands(s, r))
	}
}

// TestNotedInPlace: while a denial takes the place of the one before, the key is denied, as
// long as no key of its set is changed.
func TestNotedInPlace(t *testing.T) {
	_, s := denied(t, time.Hour, one, 1)
	r := take("k", one, 1)
	e := s.cache.of("k")[0]
	e.noted.Store(false)
	require.True(t, cached(t, s, r))
	require.True(t, stands(s, r))
	s.cache.Forget(beside(s, "k"))
	require.False(t, stands(s, r))
	require.False(t, cached(t, s, r))
}

// TestOneSpread: a key that is spread otherwise has counts of its own.
func TestOneSpread(t *testing.T) {
	_, s := denied(t, time.Hour, one, 1)
	r := take("k", one, 1)
	r.Shards = 2
	require.False(t, cached(t, s, r))
	require.False(t, stands(s, r))
}

// TestBounded: an attacker with more keys than that costs memory for so many.
func TestBounded(t *testing.T) {
	redistest.Plain(t)
	f := &fake{do: denies(time.Second)}
	s := f.wrapper(Longest)
	for i := range 3 * sets * ways {
		ask(t, s, take(fmt.Sprint(i), one, 1))
	}
	require.LessOrEqual(t, s.cache.entries(), sets*ways)
	require.Greater(t, s.cache.entries(), sets*ways/2)
	for n := int64(10); n > 0; n-- { // dearer calls' entries are covered by cheaper ones'
		ask(t, s, take("costs", one, n))
	}
	require.Len(t, s.cache.of("costs"), 1)
	s = (&fake{do: denies(time.Second)}).wrapper(Longest)
	for n := range int64(9) {
		list := policies(1)
		list[0].Name = fmt.Sprint(n)
		ask(t, s, take("lists", list, 1))
	}
	require.Len(t, s.cache.of("lists"), ways)
	long := strings.Repeat("k", keyMax)
	for _, key := range []string{long, long + "k"} {
		ask(t, s, take(key, one, 1))
		require.Equal(t, len(key) <= keyMax, cached(t, s, take(key, one, 1)))
	}
}

// TestKeepsNoBuffers: neither the key, which may be cut from a request, nor
// the states, which are the caller's.
func TestKeepsNoBuffers(t *testing.T) {
	f := &fake{do: denies(time.Second)}
	s := f.wrapper(Longest)
	request := []byte("GET /k")
	r, key := take("", policies(2), 1), unsafe.String(&request[5], 1)
	r.Key, r.Each, r.Costs = key, make([]backend.State, 2), []int64{1, 1}
	ask(t, s, r)
	request[5], r.Each[0].Policy, r.Costs[0] = 'x', "mine", 9
	r.Key = "k"
	require.True(t, cached(t, s, take("k", policies(2), 1)))
	require.Equal(t, "a", s.cache.of("k")[0].States[0].Policy)
}

// TestEndedEntriesLeave when another call of their key comes by.
func TestEndedEntriesLeave(t *testing.T) {
	f, s := denied(t, 10*time.Millisecond, one, 3)
	f.advance(Standing)
	f.do = leaves(9)
	require.Equal(t, 1, s.cache.entries())
	ask(t, s, take("k", one, 1)) // which the denial would not have denied
	require.Zero(t, s.cache.entries())
}

// beside returns another key of one's set.
func beside(s *Store, key string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprint("beside", i); s.cache.At(other).line == s.cache.At(key).line {
			return other
		}
	}
}

func (c *Cache) entries() (n int) {
	for i := range c.sets {
		n += len(c.sets[i].entries(""))
	}
	return n
}

// entries returns those of a key; of "" all.
func (s *line) entries(key string) (all []*entry) {
	for i := range s.ways {
		if e := s.ways[i].Load(); e != nil && (key == "" || e.group.Key == key) {
			all = append(all, e)
		}
	}
	return all
}

func (c *Cache) of(key string) []*entry { return c.At(key).entries(key) }

// passes lets all pass.
type passes struct{ *fake }

func (passes) Do(_ context.Context, _ *backend.Request, d *backend.Decision) error {
	d.Allowed = true
	return nil
}

// TestCheapPaths: neither a key without an entry nor an answer allocates.
func TestCheapPaths(t *testing.T) {
	f, hit := denied(t, time.Hour, one, 1)
	miss, ctx := New(passes{f}, f.Shared(), Longest), context.Background()
	each := take("k", one, 1)
	each.Each = make([]backend.State, 1)
	for _, c := range []struct {
		s *Store
		r backend.Request
	}{{hit, take("k", one, 1)}, {hit, each}, {miss, take("nobody", one, 1)}, {miss, take(beside(hit, "k"), one, 1)}} {
		var d backend.Decision
		require.Zero(t, testing.AllocsPerRun(100, func() { d = backend.Decision{}; _ = c.s.Do(ctx, &c.r, &d) }), c.r.Key)
	}
}

// BenchmarkTake is what the wrapper costs: a store that answers at once and
// knows no denial, one that does, and an answer of its own. In production the
// clock is time.Now.
func BenchmarkTake(b *testing.B) {
	h := &layer.Shared{}
	f := &fake{do: denies(time.Hour)}
	miss := New(passes{f}, h, Longest)
	run := func(name string, s *Store, r backend.Request) {
		b.Run(name, func(b *testing.B) {
			var d backend.Decision
			b.ReportAllocs()
			for b.Loop() {
				d = backend.Decision{}
				_ = s.Do(context.Background(), &r, &d)
			}
		})
	}
	run("Off", New(passes{f}, h, -1), take("user:42", one, 1))
	run("NothingKnown", miss, take("user:42", one, 1))
	_, _ = layer.Ask(context.Background(), New(f, h, Longest), take("k", one, 1))
	run("KnownBeside", miss, take(beside(miss, "k"), one, 1))
	still := &fake{do: denies(time.Hour)} // so that it never lapses
	hit := still.wrapper(Longest)
	_, _ = layer.Ask(context.Background(), hit, take("user:42", one, 1))
	run("Hit", hit, take("user:42", one, 1))
}

// TestPings: what wrappers hand on.
func TestPings(t *testing.T) {
	f := &fake{}
	w, err := f.wrapper(Longest).Ping(context.Background())
	require.NoError(t, err)
	require.Empty(t, w)
	_, err = New(pinger{f}, f.Shared(), Longest).Ping(context.Background())
	require.ErrorIs(t, err, errPing)
}

var errPing = errors.New("pinged")

type pinger struct{ *fake }

func (pinger) Ping(context.Context) ([]string, error) { return nil, errPing }

// TestOneOfTwoKeysIsKnown: a denial that holds for one key is answered without a request,
// until it is due to be asked for again, and not after Close.
func TestOneOfTwoKeysIsKnown(t *testing.T) {
	f, s := denied(t, time.Minute, one, 1)
	f.do = func(r *backend.Request) (d backend.Decision, _ error) {
		d.Source, d.Key, d.At, d.RetryAfter = backend.FromStore, "k", slices.IndexFunc(append([]backend.Group{r.Group}, r.And...), func(g backend.Group) bool { return g.Key == "k" }), time.Minute
		d.Allowed = d.At < 0
		d.At = max(d.At, 0)
		return d, nil
	}
	known := func(keys ...string) bool {
		r := take(keys[0], one, 1)
		r.And = []backend.Group{take(keys[1], one, 1).Group}
		before := f.asked.Load()
		d := ask(t, s, r)
		require.Equal(t, d.Source == backend.FromDenyCache, before == f.asked.Load())
		if d.Source == backend.FromDenyCache {
			require.False(t, d.Allowed)
			require.Equal(t, "k", d.Key)
			require.Equal(t, "k", keys[d.At])
			require.Positive(t, d.RetryAfter)
		}
		return d.Source == backend.FromDenyCache
	}
	require.True(t, known("k", "other"))
	require.True(t, known("other", "k"))
	require.False(t, known("other", "third"))
	f.advance(Longest*3/4 - 1)
	require.True(t, known("k", "other"))
	f.advance(1)
	require.False(t, known("k", "other"), "the caller asks")
	require.True(t, known("k", "other"), "it has asked")
	require.NoError(t, f.Close())
	_, err := layer.Ask(context.Background(), s, take("k", one, 1))
	require.ErrorIs(t, err, backend.ErrClosed)
}

// TestRefreshIsLeft: a call that the denial of one key answers leaves it to another call to
// ask for the denial of its other key again.
func TestRefreshIsLeft(t *testing.T) {
	f, s := denied(t, time.Minute, one, 1)
	f.advance(Longest / 2)
	f.do = denies(time.Minute)
	require.False(t, cached(t, s, take("later", one, 1)))
	f.advance(Longest / 4)
	both := take("k", one, 1)
	both.And = []backend.Group{take("later", one, 1).Group}
	require.True(t, cached(t, s, both), "the denial of one key is not due")
	require.False(t, cached(t, s, take("k", one, 1)), "that of the other still is")
}
