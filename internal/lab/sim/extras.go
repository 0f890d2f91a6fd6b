package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
)

// Extras are what some plans have beside what all have.
type Extras struct {
	Full    bool          // a client's pool refuses a command at once while it is full
	Single  bool          // every call makes a round trip of its own
	Bursts  bool          // callers call at the same instants
	Distant bool          // a far link is of 30 ms each way, so that two round trips take longer than the budget
	Fresh   bool          // the last primary of a cluster has no slots, until some move there
	Unnamed bool          // a node does not announce its own host
	Named   bool          // the server's address is a name of two addresses, of which the first is silent
	Deploy  bool          // every other process has another period under one policy's name
	Thin    bool          // a link passes 40 MB per second each way
	Crowd   bool          // the first process has callers that come at once, and of which many leave
	Borrow  time.Duration // of the policies of one list; 0: there is no such list
	Beside
}

// Beside is what some plans have beside calls that borrow, of those that all borrow.
type Beside struct {
	Lower   bool  // another list has the same counts and lower limits; half of those who borrow call it
	Runs    bool  // those who borrow call eight times in a moment, and then rest
	Records bool  // about once in a period a Record charges up to half of the limit
	Large   int64 // the most units of a large call, nine tenths of the limit, about once in a period; 0: there is none
	Late    bool  // processes are late by themselves, for a term at most
	Apart   bool  // the policies of the list are a window of a second and a bucket that fills slowly
}

// draw draws the extras, with a generator of their own. So a seed without any has the rest
// of its plan as before.
func (p *Plan) draw(shape Shape) {
	dice := rand.New(rand.NewPCG(p.Seed, 43))
	some := func(n int) bool { return dice.IntN(n) == 0 }
	p.Extras = Extras{
		Full: some(4), Single: some(6), Bursts: some(4), Distant: some(2), Fresh: some(4), Unnamed: some(4), Named: some(4), Deploy: some(3), Thin: some(6),
	}
	p.Crowd = rand.New(rand.NewPCG(p.Seed, 53)).IntN(4) == 0 && p.Lasts == time.Minute
	if p.Bursts && shape.Procs > 0 { // which add a quarter of a second to each pause
		p.Pause = p.Pause*9/10 - time.Second/4
	}
	p.Distant = p.Distant && p.Far
	p.Fresh, p.Unnamed, p.Named = p.Fresh && p.Cluster, p.Unnamed && p.Cluster, p.Named && !p.Cluster
	if p.Deploy {
		p.Later = later(p.Lists[0])
	}
	p.Borrow = [...]time.Duration{100, 250, 500, 1000}[dice.IntN(4)] * time.Millisecond
	if borrows := some(4); p.Lasts > time.Minute || !borrows && !shape.Borrow {
		p.Borrow = 0
	} else {
		p.Lists = append(p.Lists, p.lending(dice))
		p.lendMore(p.Lists[4])
		if shape.Borrow {
			late, apart := p.lendApart()
			p.lendBeside()
			p.Late, p.Apart = late, apart
		}
	}
	for i := range p.Schedule {
		f := &p.Schedule[i]
		switch kind := kinds + faultKind(dice.IntN(int(allKinds-kinds))); {
		case some(6):
			f.kind = kind
		case p.Distant && f.kind.lingers() > 0: // no trial finds a silent connection so far away
			f.kind = cutting
		}
	}
}

// later returns a list with another shape of its first policy that is a window.
func later(list []headgate.Policy) []headgate.Policy {
	list = append([]headgate.Policy(nil), list...)
	for i := range list {
		a := &list[i].Algorithm
		l := a.Limit()
		l.Period *= 2
		switch a.Kind() {
		case algo.KindFixedWindow:
			*a = algo.FixedWindow(l)
		case algo.KindSlidingWindow:
			*a = algo.SlidingWindow(l)
		case algo.KindBucketedWindow:
			*a = algo.BucketedWindow(a.Limit(), 15)
		default:
			continue
		}
		break
	}
	return list
}

// lenders is how many callers borrow in each of the first processes.
const (
	lenders  = 2
	lendings = 12_000 // calls of such a list in a run
)

// lending draws a list of policies that lend, whose limit the callers reach or do not.
func (p *Plan) lending(dice *rand.Rand) (list []headgate.Policy) {
	rate := int64(lendings) / int64(p.Lasts/time.Second) * int64(min(p.Procs, 4)) / 4
	for i := range 1 + dice.IntN(2) {
		period := int64(1 + dice.IntN(10))
		limit := max(rate*period*10/int64(5+dice.IntN(25)), int64(p.Procs)) // 50 to 290 % of it are called
		l := algo.Limit{Events: limit, Period: time.Duration(period) * time.Second}
		a := [...]algo.Algorithm{
			algo.FixedWindow(l), algo.SlidingWindow(l), algo.BucketedWindow(l, 10), algo.TokenBucket(l, max(limit/4, int64(p.Procs))),
		}[dice.IntN(4)]
		list = append(list, headgate.Policy{
			Name: fmt.Sprint("lent", i), Algorithm: a, OnFailure: p.Lists[0][0].OnFailure, Shadow: i > 0 && dice.IntN(3) == 0, Borrow: p.Borrow,
		})
	}
	return list
}

// lendMore makes some of the policies that lend logs, and spreads the keys of some plans. The
// draws are of a generator of their own, so the other plans that borrow stay as they were.
func (p *Plan) lendMore(list []headgate.Policy) {
	dice := rand.New(rand.NewPCG(p.Seed, 47))
	for i := range list {
		l := list[i].Algorithm.Limit()
		switch dice.IntN(5) {
		case 0:
			list[i].Algorithm = algo.SlidingLog(l)
		case 1:
			list[i].Algorithm = algo.CompactLog(l)
		}
	}
	if dice.IntN(3) > 0 {
		return
	}
	shards := 2 + dice.IntN(3)
	for i := range list { // a call's cost of 3 has room in each share, and each process has a part of it
		shards = min(shards, int(list[i].Algorithm.Max())/max(3, p.Procs))
	}
	for i := range list {
		list[i].Shards = shards
	}
}

// lendApart draws which processes are late by themselves, and makes the list of some plans one
// whose parts of a loan end apart. Of shorter terms and over far links a circuit may be open for
// longer than a loan stands.
func (p *Plan) lendApart() (late, apart bool) {
	dice := rand.New(rand.NewPCG(p.Seed, 61))
	late, apart = dice.IntN(2) == 0, dice.IntN(4) == 0
	if late = late && p.Borrow >= 250*time.Millisecond && !p.Far; late {
		for at := calm; at < p.Lasts-calm; at += 2*calm + silence {
			p.Schedule = append(p.Schedule, fault{
				at: at + time.Duration(dice.Int64N(int64(time.Second))), lasts: time.Duration(1 + dice.Int64N(int64(p.Borrow))), kind: stopped, proc: dice.IntN(min(p.Procs, 4)),
			})
		}
	}
	if list := p.Lists[4]; apart && list[0].Shards == 0 {
		rate := max(1, list[0].Algorithm.Max()*int64(time.Second)/int64(list[0].Algorithm.Limit().Period))
		bucket := list[0]
		list[0].Algorithm = algo.FixedWindow(algo.PerSecond(max(rate, int64(p.Procs))))
		bucket.Name = "lent1"
		bucket.Algorithm = algo.TokenBucket(algo.Per(max(rate*30, int64(p.Procs)), time.Minute), max(rate*4, int64(p.Procs)))
		p.Lists[4] = []headgate.Policy{list[0], bucket}
	}
	return late, apart
}

// lendBeside draws what is beside calls that borrow, with a generator of its own. Keys that are
// spread have none of it. The limits are twice as high as without, so that much is lent.
func (p *Plan) lendBeside() {
	dice := rand.New(rand.NewPCG(p.Seed, 59))
	some := func(n int) bool { return dice.IntN(n) == 0 }
	lower, large, shadow, borrows, parts := p.Lists[4], some(2), some(3), some(2), int64(2+dice.IntN(3))
	p.Beside = Beside{Lower: some(2), Runs: some(2), Records: some(2)}
	if lower[0].Shards > 1 {
		p.Beside = Beside{}
		return
	}
	if shadow {
		lower = append(lower, headgate.Policy{
			Name: "shadow", Algorithm: lower[0].Algorithm.Part(0, parts), OnFailure: lower[0].OnFailure, Shadow: true, Borrow: p.Borrow,
		})
	}
	list := slices.Clone(lower)
	for i := range list {
		list[i].Algorithm = list[i].Algorithm.Share(2, 1)
		if !borrows {
			lower[i].Borrow = 0
		}
	}
	if p.Lists[4] = list; p.Lower {
		p.Lists = append(p.Lists, lower)
	}
	if large {
		p.Large = most(list) * 9 / 10
	}
}

// most returns the least of the limits of the policies that deny.
func most(list []headgate.Policy) (n int64) {
	n = algo.MaxUnits
	for _, policy := range list {
		if !policy.Shadow {
			n = min(n, policy.Algorithm.Max())
		}
	}
	return n
}

// list returns the policies of a process's limiter.
func (p *Plan) list(proc, i int) []headgate.Policy {
	if i == 0 && p.Later != nil && proc%2 == 1 {
		return p.Later
	}
	return p.Lists[i]
}

// policies calls f with every policy of the fleet.
func (p *Plan) policies(f func(headgate.Policy)) {
	for _, list := range append([][]headgate.Policy{p.Later}, p.Lists...) {
		for _, policy := range list {
			f(policy)
		}
	}
}

// identity names a policy's count.
func identity(p headgate.Policy) string {
	id := p.Algorithm.Identity()
	return p.Name + "/" + strconv.FormatInt(id.Period, 10) + "/" + strconv.FormatInt(int64(id.Buckets), 10)
}
