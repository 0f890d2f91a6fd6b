package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
)

// workload is a feature as callers meet it. A seed draws some of them. They share the
// policies, the keys, the processes and the faults, so that each pair is met on one count.
type workload struct {
	name    string
	without []string                         // those beside which the library refuses it, by a typed error
	plan    func(p *Plan, dice *rand.Rand)   // what it adds to a plan; nil: nothing
	call    func(c *caller)                  // of the callers that have it; nil: it has none, or callers beside them
	of      func(c *caller, o *outcome) bool // reports whether a call is one of the feature
	rules   []holds                          // what holds in every run that has it
}

// holds is one thing that holds, with its sentence of the specification.
type holds struct {
	name  string
	check func(w *World) error
}

// workloads are all, in the order in which they add to a plan. Calls that take or look are
// those of each plan.
var workloads = []workload{
	{name: "borrow", plan: (*Plan).lend, of: fromLoan, rules: []holds{
		{"Lent units count as used by whoever asks.", (*World).roomForAll},
		{"A wrong denial lasts at most T.", (*World).recalls},
		{"A process that is late by less than two terms burns nothing.", (*World).nothingBurnt},
	}},
	{name: "deploy", plan: (*Plan).deploy, of: otherPeriod},
	{name: "shadow", plan: (*Plan).shadow, of: each, rules: []holds{
		{"A shadow never denies.", (*World).shadowsPass},
	}},
	{name: "lower", plan: (*Plan).lower, call: (*caller).lowered, of: byLower},
	{name: "spread", plan: (*Plan).spread, of: spread, without: []string{"reserve", "record", "all", "wait all", "first", "return", "named"}},
	{name: "reserve", plan: (*Plan).reserve, call: (*caller).reserve, of: verb("reserve"), rules: []holds{
		{"A settle that returned nil has reached the store.", (*World).settlesReach},
		{"Never more slots than the limit.", (*World).slotsAreFew},
		{"A lease is settled or ends.", (*World).leasesEnd},
	}},
	{name: "record", call: (*caller).record, of: verb("record"), rules: []holds{
		{"A Record always passes, and has no failure mode.", (*World).recordsPass},
	}},
	{name: "at most", call: (*caller).atMost, of: verb("at most"), rules: []holds{
		{"AllowAtMost grants what it was asked for, or what there is.", (*World).grantsAtMost},
	}},
	{name: "reset", call: (*caller).reset, of: verb("reset"), rules: []holds{
		{"A Reset that returned nil has reached the store.", (*World).resetsReach},
		{"A Reset shows at once in its own process.", (*World).resetsEndLoans},
	}},
	{name: "wait", call: (*caller).wait, of: verb("wait"), rules: []holds{
		{"First come, first served within the process.", (*World).waitsInOrder},
		{"A waiting call that fits passes.", (*World).waitsForWant},
	}},
	{name: "all", call: (*caller).all, of: verb("all"), rules: []holds{
		{"All on one server is one atomic script.", (*World).allAtOnce},
		{"All charges each of its keys.", (*World).allCharged},
	}},
	{name: "wait all", call: (*caller).waitAll, of: verb("wait all"), rules: []holds{
		{"WaitAll charges each of its keys.", (*World).allCharged},
		{"A waiting call that fits passes.", (*World).waitsForWant},
	}},
	{name: "crowd", of: func(c *caller, _ *outcome) bool { return c.leaves }, rules: []holds{
		{"A caller that has left costs the server nothing.", (*World).looksForCallers},
	}},
	{name: "late", plan: (*Plan).late, of: func(c *caller, _ *outcome) bool { return c.hurries }, rules: []holds{
		{"A process that was late decides a second later.", (*World).hurriedDecide},
	}},
	{name: "first", call: (*caller).first, of: verb("first"), rules: []holds{
		{"First charges the first part that has room.", (*World).firstInTurn},
	}},
	{name: "return", call: (*caller).returns, of: verb("return"), rules: []holds{
		{"A Return is made at most once. One that returned nil was made.", (*World).returnsOnce},
		{"A Return forgets known denials of its key.", (*World).returnsForget},
	}},
	{name: "named", call: (*caller).named, of: verb("named"), rules: []holds{
		{"A Reserve under an ID of the caller's is the same reservation while that is open, and is not cancelled.", (*World).jobsStand},
	}},
}

// older is how many workloads shared the dice of a seed when the others came.
var older = order(workloadOf("first"))

// verb returns the function of for a workload that has a verb.
func verb(name string) func(*caller, *outcome) bool {
	return func(_ *caller, o *outcome) bool { return o.verb == name }
}

func each(*caller, *outcome) bool { return true }

func fromLoan(_ *caller, o *outcome) bool { return o.d.Source == headgate.FromLoan }

func byLower(_ *caller, o *outcome) bool { return o.list == lowered }

func spread(_ *caller, o *outcome) bool { return o.by.world.plan.Shards > 1 }

// otherPeriod reports whether a call is of a process that has another period under one name.
func otherPeriod(_ *caller, o *outcome) bool { return o.by.number%2 == 1 }

// workloadOf returns the workload of a name.
func workloadOf(name string) *workload {
	i := slices.IndexFunc(workloads, func(w workload) bool { return w.name == name })
	if i < 0 {
		panic("no workload " + name)
	}
	return &workloads[i]
}

// refuses reports whether one of two workloads does not exist beside the other.
func (w *workload) refuses(other *workload) bool {
	return slices.Contains(w.without, other.name) || slices.Contains(other.without, w.name)
}

// drawWorkloads draws two to four, of which some may be given by their names. Those that came later
// have dice of their own, so that seeds without them are as they were before.
func drawWorkloads(seed uint64, with string) (all []*workload) {
	dice := rand.New(rand.NewPCG(seed, 71))
	n := 2 + dice.IntN(3)
	for _, name := range strings.FieldsFunc(with, func(r rune) bool { return r == ',' }) {
		all = append(all, workloadOf(name))
	}
	for len(all) < n {
		w := &workloads[dice.IntN(older)]
		if !slices.Contains(all, w) && !slices.ContainsFunc(all, w.refuses) {
			all = append(all, w)
		}
	}
	for i := range workloads[older:] {
		w := &workloads[older+i]
		if rand.New(rand.NewPCG(seed, 83+uint64(i))).IntN(4) == 0 && !slices.Contains(all, w) && !slices.ContainsFunc(all, w.refuses) {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *workload) int { return order(a) - order(b) })
	return all
}

func order(w *workload) int {
	return slices.IndexFunc(workloads, func(o workload) bool { return o.name == w.name })
}

// has reports whether a plan has a workload.
func (p *Plan) has(name string) bool {
	return slices.ContainsFunc(p.Workloads, func(w *workload) bool { return w.name == name })
}

// met returns the pairs of workloads whose calls met on a key, in the order of the table.
func (w *World) met() (pairs []string) {
	keys := make([]map[string]bool, len(w.plan.Workloads))
	for i, f := range w.plan.Workloads {
		keys[i] = map[string]bool{}
		w.outcomes(func(c *caller, o *outcome) {
			if f.of(c, o) {
				for _, key := range o.keys() {
					keys[i][key] = true
				}
			}
		})
	}
	for i, a := range w.plan.Workloads {
		for j, b := range w.plan.Workloads[:i] {
			for key := range keys[i] {
				if keys[j][key] {
					pairs = append(pairs, b.name+" × "+a.name)
					break
				}
			}
		}
	}
	return pairs
}

// table returns how many seeds met each pair: a row and a column per workload.
func table(met map[string]int) string {
	var b strings.Builder
	fmt.Fprint(&b, "| seeds that met |")
	for _, w := range workloads[1:] {
		fmt.Fprint(&b, " ", w.name, " |")
	}
	b.WriteString("\n" + strings.Repeat("| --- ", len(workloads)) + "|\n")
	for i := range workloads[:len(workloads)-1] {
		fmt.Fprint(&b, "| ", workloads[i].name, " |")
		for j := range workloads[1:] {
			switch w := &workloads[j+1]; {
			case j < i:
				fmt.Fprint(&b, "  |")
			case w.refuses(&workloads[i]):
				fmt.Fprint(&b, " refused |")
			default:
				fmt.Fprint(&b, " ", met[workloads[i].name+" × "+w.name], " |")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// shadowsPass looks for denials that name a policy which only watches.
func (w *World) shadowsPass() (err error) {
	w.outcomes(func(c *caller, o *outcome) {
		for _, p := range o.policies() {
			if p.Shadow && o.err == nil && !o.d.Allowed && o.d.Policy == p.Name && err == nil {
				err = o.at(c)
			}
		}
	})
	return err
}

// recordsPass looks at calls that record.
func (w *World) recordsPass() (err error) {
	w.outcomes(func(c *caller, o *outcome) {
		if o.op == backend.Record && o.err == nil && (!o.d.Allowed || o.d.Source != headgate.FromStore) && err == nil {
			err = o.at(c)
		}
	})
	return err
}

// grantsAtMost looks at what was granted.
func (w *World) grantsAtMost() (err error) {
	w.outcomes(func(c *caller, o *outcome) {
		wrong := o.d.Passed < 0 || o.d.Passed > o.most || o.d.Allowed != (o.d.Passed > 0)
		if o.op == backend.AtMost && o.err == nil && wrong && err == nil {
			err = o.at(c)
		}
	})
	return err
}

// resetsReach compares the Resets of a key that returned nil with those that nodes received.
func (w *World) resetsReach() error {
	told := map[string]int{}
	w.outcomes(func(_ *caller, o *outcome) {
		if o.op == backend.Reset && o.err == nil {
			told[o.key]++
		}
	})
	for key, n := range told {
		if received := w.ledger.resets[key]; received < n {
			return fmt.Errorf("%s: %d Resets returned nil, the nodes received %d", key, n, received)
		}
	}
	return nil
}

// at returns an error that names a call.
func (o *outcome) at(c *caller) error {
	return fmt.Errorf("%s at %v: %v", c.name, o.begin.Sub(o.by.world.start), o)
}
