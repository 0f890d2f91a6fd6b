package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/oracle"
)

type pairVerb string

const (
	moveClock      pairVerb = "clock"
	callAllow      pairVerb = "Allow"
	callAllowN     pairVerb = "AllowN"
	callDo         pairVerb = "Do"
	callPeek       pairVerb = "Peek"
	peekAtRetry    pairVerb = "Peek at RetryAfter"
	callAtMost     pairVerb = "AllowAtMost"
	callRecord     pairVerb = "Record"
	callReturn     pairVerb = "Return"
	callReset      pairVerb = "Reset"
	callWait       pairVerb = "Wait"
	callReserve    pairVerb = "Reserve"
	callCommit     pairVerb = "Commit"
	callCancel     pairVerb = "Cancel"
	callResume     pairVerb = "Resume and Commit"
	callExtend     pairVerb = "Extend"
	callAll        pairVerb = "All"
	callReserveAll pairVerb = "ReserveAll"
	callJob        pairVerb = "Reserve of a job"
	callJobEnd     pairVerb = "Commit, Cancel or Extend of a job"
	callWrong      pairVerb = "a wrong call"
)

// pairVerbs has each verb as often as it is drawn.
var pairVerbs = []pairVerb{moveClock, moveClock, moveClock, moveClock, moveClock, moveClock, callAllow, callAllow, callAllowN, callDo, callDo, callDo, callPeek, peekAtRetry, callAtMost, callAtMost, callRecord, callReturn, callReturn,
	callReset, callWait, callWait, callReserve, callReserve, callReserve, callReserve, callCommit, callCommit, callCommit, callCancel, callCancel, callResume, callExtend, callExtend, callAll, callAll, callReserveAll, callJob, callJob, callJobEnd, callJobEnd, callWrong}

// world is a run of a program.
type world struct {
	p        *pairProgram
	g        *ground
	lose     func(bool) int
	hits     int                          // answers that were lost before this step
	denials  map[string][]headgate.Policy // by key and list, and by count: the store has denied, and nothing was given back since
	denied   map[string]denied            // by key
	apart    bool                         // the store decides one key per request
	lost     int                          // the step of the last answer that was lost
	limiters []*headgate.Limiter
	beside   []*headgate.Limiter // of the same lists in another process, for Peek
	prefix   string
	model    *oracle.Model
	booked   map[int][]*booking             // by the step that reserved
	jobs     map[string]*job                // by key and ID
	event    atomic.Pointer[headgate.Event] // of the last call
	last     headgate.State                 // of the last decision
	said     []string
}

// booking is a reservation, and the model's.
type booking struct {
	r       *headgate.Reservation
	lease   *oracle.Lease
	limiter int
}

func newWorld(p *pairProgram, g *ground) (*world, error) {
	g.runs++
	g.now.Store(p.start)
	w := &world{p: p, g: g, lost: -10, prefix: fmt.Sprint("k", g.runs, "-"), model: oracle.NewModel(p.start, p.lists, p.shards), booked: map[int][]*booking{}, jobs: map[string]*job{}, denials: map[string][]headgate.Policy{}, denied: map[string]denied{}}
	s, beside, lose := g.open(p)
	w.lose, w.apart = lose, p.apart && g.server == nil
	o := &headgate.Options{Shards: p.shards[0], DenyCacheTTL: -1, Observer: func(e headgate.Event) {
		if e.Type == headgate.EventDecision && e.Op != backend.Settle {
			w.event.Store(&e)
		}
	}}
	if p.cache {
		o.DenyCacheTTL = 0
	}
	if p.keyed {
		o.TokenKey = []byte("a key of sixteen")
	}
	first, err := headgate.New(s, p.lists[0], o)
	if err != nil {
		return nil, err
	}
	w.limiters = []*headgate.Limiter{first}
	for i, list := range p.lists[1:] {
		l, err := first.WithShards(0)
		if err == nil {
			l, err = l.With(list...)
		}
		if err == nil {
			l, err = l.WithShards(p.shards[1+i])
		}
		if err != nil {
			return nil, err
		}
		w.limiters = append(w.limiters, l)
	}
	for i, list := range p.lists {
		l, err := headgate.New(beside, list, &headgate.Options{Shards: p.shards[i], DenyCacheTTL: -1})
		if err != nil {
			return nil, err
		}
		w.beside = append(w.beside, l)
	}
	return w, nil
}

// spread reports whether a limiter spreads its keys.
func (w *world) spread() bool {
	return slices.Max(w.p.shards) > 1
}

func (w *world) close() { w.quiet() }

// quiet waits until nothing is cancelled in the background.
func (w *world) quiet() {
	for end := time.Now().Add(5 * time.Second); headgate.Cancelling(w.limiters[0]) > 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Microsecond)
	}
}

func (w *world) key(i int) string { return fmt.Sprint(w.prefix, i) }

func (w *world) say(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf("+%-14v ", time.Duration(w.model.Now-w.p.start)*time.Microsecond)+fmt.Sprintf(format, args...))
}

func (w *world) step(s *step) error {
	slots := hasSlots(w.p.lists[s.limiter])
	if w.spread() { // what a sub-key answered at this instant would count as an answer to this call
		w.by(1)
	}
	if w.p.shards[s.limiter] > 1 && (s.verb == callReserve || s.verb == callJob || s.verb == callRecord || s.verb == callReturn) {
		return w.refused(s)
	}
	switch s.verb {
	case moveClock:
		w.advance(s)
		return nil
	case callReset:
		return w.reset(s)
	case callReserve:
		return w.reserve(s)
	case callCommit, callCancel, callResume:
		return w.settle(s)
	case callExtend:
		return w.extend(s)
	case callJob:
		return w.reserveJob(s)
	case callJobEnd:
		return w.settleJob(s)
	case callReserveAll:
		return w.all(s)
	case callWrong:
		return w.wrong(s)
	case callPeek:
		return w.call(s, backend.Peek, w.costs(s, true))
	case peekAtRetry:
		return w.exact(s)
	}
	if slots {
		return nil // only a Reserve takes a slot
	}
	switch s.verb {
	case callAll:
		return w.all(s)
	case callWait:
		return w.wait(s)
	case callRecord:
		return w.call(s, backend.Record, w.costs(s, false))
	case callReturn:
		return w.returns(s)
	}
	return w.take(s)
}

// returns returns units of a key. On a server a SlidingLog has a member per call, and the model
// an entry per instant: what a Return leaves of a lease differs if both share one.
func (w *world) returns(s *step) error {
	list := w.p.lists[s.limiter]
	for _, p := range list {
		if !p.Algorithm.Kind().Returns() || p.Algorithm.Kind() == rule.KindSlidingLog && w.g.server != nil && len(w.booked)+len(w.jobs) > 0 {
			return nil
		}
	}
	w.given(w.key(s.key), list)
	return w.call(s, backend.Return, w.costs(s, false))
}

// refused is a call that needs one place for its key, of a limiter that spreads it.
func (w *world) refused(s *step) (err error) {
	l, c := w.limiters[s.limiter], headgate.Call{Key: w.key(s.key), Costs: w.costs(s, false)}
	switch s.verb {
	case callRecord:
		_, err = l.Record(context.Background(), c)
	case callReturn:
		_, err = l.Return(context.Background(), c.Key, c.Costs...)
	default:
		_, _, err = l.Reserve(context.Background(), c)
	}
	w.say("limiter %d: %s(%d) = %v", s.limiter, s.verb, s.key, err)
	if !errors.Is(err, headgate.ErrUnsupported) {
		return fmt.Errorf("not refused: %w", err)
	}
	return w.look(w.at(s.limiter, c.Key))
}

func hasSlots(list []headgate.Policy) bool {
	return slices.ContainsFunc(list, func(p headgate.Policy) bool { return p.Algorithm.Kind() == rule.KindInFlight })
}

// advance moves the clock: a little, to where something ends, or far.
func (w *world) advance(s *step) {
	by, n := int64(0), s.draw[1]
	list := w.p.lists[s.limiter]
	period := list[n%uint64(len(list))].Algorithm.Limit().Period.Microseconds()
	switch s.draw[0] % 8 {
	case 0:
		by = int64(n % 1000)
	case 1:
		by = int64(n % 20_000)
	case 2:
		by = w.last.RetryAfter.Microseconds() - int64(n%3) + 1
	case 3:
		by = w.last.RetryAfter.Microseconds() - int64(n%2000)
	case 4:
		by = w.last.ResetAfter.Microseconds() - int64(n%3) + 1
	case 5:
		for _, b := range w.booked[s.of] {
			by = b.lease.End - w.model.Now + int64(n>>8%2)*b.lease.Length - int64(n%3) + 1
		}
	case 6:
		by = int64(n % uint64(max(1, period)))
	default:
		by = int64(n % uint64(max(1, min(2*period, 3*86_400_000_000))))
	}
	w.by(max(0, by))
	w.say("clock")
}

func (w *world) by(us int64) {
	w.model.Now += us
	w.g.now.Store(w.model.Now)
}

// costs draws a cost for each of the limiter's policies.
func (w *world) costs(s *step, zero bool) []int64 {
	list, sum := w.p.lists[s.limiter], int64(0)
	costs := make([]int64, len(list))
	for i := range list {
		most, n := w.most(s.limiter, &list[i]), s.draw[4+i]
		switch {
		case list[i].Algorithm.Kind() == rule.KindInFlight:
			costs[i] = min(1, int64(n%4))
		case n%8 == 0:
		case s.verb == callRecord && n%64 < 8 && w.canSaturate(s.limiter):
			costs[i] = rule.MaxLogLimit
		case s.verb == callRecord:
			costs[i] = 1 + int64(n>>8%uint64(2*list[i].Algorithm.Max()))
		case n%8 < 5:
			costs[i] = min(most, 1+int64(n>>8%3))
		default:
			costs[i] = 1 + int64(n>>8%uint64(most))
		}
		sum += costs[i]
	}
	if sum == 0 && !zero {
		costs[0] = 1
	}
	return costs
}

// canSaturate reports whether the model can count that much for a limiter.
func (w *world) canSaturate(limiter int) bool {
	return w.p.shards[limiter] < 2 && !slices.ContainsFunc(w.p.lists[limiter], func(p headgate.Policy) bool {
		return p.Algorithm.Kind().Rates() && p.Algorithm.Limit().Period > time.Minute
	})
}

// most is the greatest cost of a limiter's policy: on a spread key that of the smallest share.
func (w *world) most(limiter int, p *headgate.Policy) int64 {
	return max(1, p.Algorithm.Max()/max(1, int64(w.p.shards[limiter])))
}

func (w *world) part(limiter, key int, costs []int64, each bool) oracle.Part {
	p := oracle.Part{Key: w.key(key), Policies: w.p.lists[limiter], Shards: w.p.shards[limiter], Costs: costs}
	if each {
		p.Each = make([]headgate.State, len(costs))
	}
	return p
}

// take is one of the pairVerbs that charge if there is room.
func (w *world) take(s *step) error {
	list := w.p.lists[s.limiter]
	costs, op := w.costs(s, false), backend.Take
	n := int64(1)
	if s.verb == callAllowN || s.verb == callAtMost {
		n = w.most(s.limiter, &list[0])
		for i := range list {
			n = min(n, w.most(s.limiter, &list[i]))
		}
		n = 1 + int64(s.draw[2]%uint64(n))
	}
	if s.verb == callAtMost {
		op, n = backend.AtMost, n+int64(s.draw[3]%4)
		if w.p.shards[s.limiter] > 1 {
			n = min(n, w.most(s.limiter, &list[0]))
		}
		for i := range list {
			if list[i].Algorithm.Kind().Queues() { // of more, the burst passes
				n = min(n, list[i].Algorithm.Max())
			}
		}
	}
	if s.verb != callDo {
		for i := range costs {
			costs[i] = n
		}
	}
	if s.verb == callDo {
		return w.call(s, op, costs)
	}
	sure, _ := w.model.Sure(op, []oracle.Part{w.part(s.limiter, s.key, costs, false)})
	if !sure && s.verb == callAtMost {
		return nil
	}
	if !sure {
		return w.call(s, op, costs) // Do tells whether a shadow was charged
	}
	return w.call(s, op, costs)
}

// call asks one key, and compares the answer.
func (w *world) call(s *step, op backend.Op, costs []int64) error {
	l, ctx := w.limiters[s.limiter], context.Background()
	plain := s.verb == callAllow || s.verb == callAllowN || s.verb == callAtMost || s.verb == callReturn
	part := w.part(s.limiter, s.key, costs, false)
	sure, _ := w.model.Sure(op, []oracle.Part{part})
	if plain = plain && sure; !plain {
		part = w.part(s.limiter, s.key, costs, true)
	}
	c := headgate.Call{Key: part.Key, Costs: costs, Each: part.Each}
	lost := w.losing(s, sure && op != backend.Peek)
	var d headgate.Decision
	var err error
	switch {
	case op == backend.Peek:
		d, err = l.Peek(ctx, c)
	case op == backend.Record:
		d, err = l.Record(ctx, c)
	case op == backend.Return:
		d, err = l.Return(ctx, c.Key, c.Costs...)
	case op == backend.AtMost:
		d, err = l.AllowAtMost(ctx, c.Key, costs[0])
	case plain && s.verb == callAllow:
		d, err = l.Allow(ctx, c.Key)
	case plain:
		d, err = l.AllowN(ctx, c.Key, costs[0])
	default:
		d, err = l.Do(ctx, c)
	}
	w.say("limiter %d: %s(%d, %v) = %v, %v", s.limiter, s.verb, s.key, costs, show(&d), err)
	if lost && w.found() {
		return w.lostCall(op, part, &d, err)
	}
	return w.judge(op, part, 0, &d, err)
}

func show(d *headgate.Decision) string {
	return fmt.Sprintf("%v by %q: used %d of %d, retry %v, %d passed, %v %v", d.Allowed, d.Policy, d.Used, d.Limit, d.RetryAfter, d.Passed, d.Source, d.Err)
}

// losing loses the answer of a step now and then, and not so often that a circuit opens.
func (w *world) losing(s *step, can bool) bool {
	if !s.lose || !can || w.spread() || w.lose == nil || !w.p.lossy || s.id-w.lost < 10 {
		return false
	}
	w.lost = s.id
	w.say("the answer is lost:")
	w.hits = w.lose(true)
	return true
}

// found ends the loss, and reports whether an answer was lost.
func (w *world) found() bool {
	w.lose(false)
	return w.lose(false) > w.hits
}

// judge compares an answer, and then all states of the limiter.
func (w *world) judge(op backend.Op, part oracle.Part, lease time.Duration, d *headgate.Decision, err error) error {
	if err != nil {
		return fmt.Errorf("error: %w", err)
	}
	if cached, err := w.cached(op, d, part); cached {
		return err
	}
	if d.Source != headgate.FromStore || d.Err != nil || d.Key != "" {
		return fmt.Errorf("no store decided, or several keys: %v", show(d))
	}
	w.last = d.State
	if _, err := w.model.Do(op, []oracle.Part{part}, lease, d); err != nil {
		return err
	}
	if part.Each != nil {
		if op == backend.Record || part.Shards > 1 {
			return w.look(part)
		}
		return oracle.Shadow(part.Policies, part.Each, w.event.Load().Shadow)
	}
	return w.look(part)
}

// at returns a key and the list of a limiter.
func (w *world) at(limiter int, key string) oracle.Part {
	return oracle.Part{Key: key, Policies: w.p.lists[limiter], Shards: w.p.shards[limiter]}
}

// limiterOf returns the first limiter of a part's list.
func (w *world) limiterOf(part oracle.Part) int {
	for i := range w.limiters {
		if w.p.shards[i] == part.Shards && slices.Equal(w.p.lists[i], part.Policies) {
			return i
		}
	}
	return -1
}

// look peeks at all states of a part's key.
func (w *world) look(part oracle.Part) error {
	if i := w.limiterOf(part); i >= 0 {
		part.Costs, part.Each = make([]int64, len(part.Policies)), make([]headgate.State, len(part.Policies))
		d, err := w.limiters[i].Peek(context.Background(), headgate.Call{Key: part.Key, Costs: part.Costs, Each: part.Each})
		if err != nil {
			return fmt.Errorf("Peek: %w", err)
		}
		if _, err := w.model.Do(backend.Peek, []oracle.Part{part}, 0, &d); err != nil {
			return fmt.Errorf("Peek afterwards: %w", err)
		}
		return nil
	}
	return nil
}
