package replay

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/cmd/headgate/internal/logs"
)

// row is what one policy of a plan has decided.
type row struct {
	policy    string
	plan      string
	tenant    string
	algorithm string
	shadow    bool // in the file
	limit     int64
	calls     int64
	denied    int64
	within    int64 // denials that the step of the log's clock may have made
	keys      logs.Column[use]
	names     *logs.Keys // of the keys; nil: those of the stream
	minute    int64      // the last one with a denial, in µs, and its denials
	inMinute  int64
	worst     int64
	inWorst   int64
}

// use is what a key has used of a policy.
type use struct {
	calls, denied uint32
	most          float32 // the greatest part of the limit
}

func newRow(p *headgate.Policy, plan, tenant string) *row {
	return &row{policy: p.Name, plan: plan, tenant: tenant, algorithm: p.Algorithm.String(), shadow: p.Shadow, limit: p.Algorithm.Max()}
}

const minute = int64(time.Minute / time.Microsecond)

// count counts a decision, and reports whether the policy had no room for the call. never is set
// if a cost is above the limit of one of the policies.
func (r *row) count(key uint32, c *logs.Call, s *headgate.State, cost int64, never bool) (lacks bool) {
	u := r.keys.Grown(key)
	r.calls++
	u.calls++
	if s.Known != backend.NotCounted {
		u.most = max(u.most, float32(float64(s.Used)/float64(r.limit)))
	}
	if lacks = s.RetryAfter > 0 || never && cost > r.limit; !lacks {
		return false
	}
	r.denied++
	u.denied++
	if !never && s.RetryAfter < time.Duration(c.Unit)*time.Microsecond {
		r.within++
	}
	if at := c.At - c.At%minute; at != r.minute || r.inMinute == 0 {
		r.minute, r.inMinute = at, 0
	}
	if r.inMinute++; r.inMinute > r.inWorst {
		r.worst, r.inWorst = r.minute, r.inMinute
	}
	return true
}

// Policy is what one policy has decided.
type Policy struct {
	Policy     string  `json:"policy"`
	Plan       string  `json:"plan,omitempty"`
	Tenant     string  `json:"tenant,omitempty"` // that has limits of its own
	Algorithm  string  `json:"algorithm"`
	Shadow     bool    `json:"shadow,omitempty"` // in the file: it denies nothing
	Limit      int64   `json:"limit"`
	Calls      int64   `json:"calls"`
	Denied     int64   `json:"denied"`
	Keys       int64   `json:"keys"` // that it counted
	DeniedKeys int64   `json:"denied_keys"`
	Within     int64   `json:"denied_within_clock"` // denials of calls that would have passed within one step of the log's clock
	Worst      *Minute `json:"worst_minute,omitempty"`
	Most       []Most  `json:"most_denied"`
	Others     Use     `json:"use_of_others"`
}

// Minute is one of the log.
type Minute struct {
	Start  time.Time `json:"start"`
	Denied int64     `json:"denied"`
}

// Most is a key that was denied.
type Most struct {
	Key    string `json:"key"`
	Calls  int64  `json:"calls,omitempty"` // not of Changes
	Denied int64  `json:"denied"`
}

// Use is what keys that were not denied used at most, in percent of the limit.
type Use struct {
	Keys int64   `json:"keys"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
	// Tenths are the keys whose use was at least 0, 10, … 90 % of the limit, and less than the next.
	// Those at the limit are among the last.
	Tenths [10]int64 `json:"tenths"`
}

// summary returns the row for the report, with the keys that were denied most. name returns a key's
// text.
func (r *row) summary(most int, name func(uint32) string) Policy {
	p := Policy{
		Policy: r.policy, Plan: r.plan, Tenant: r.tenant, Algorithm: r.algorithm, Shadow: r.shadow, Limit: r.limit,
		Calls: r.calls, Denied: r.denied, Within: r.within, Most: []Most{},
	}
	if r.inWorst > 0 {
		p.Worst = &Minute{time.UnixMicro(r.worst).UTC(), r.inWorst}
	}
	var others []float32
	var top []ranked
	for i := range r.keys.Len() {
		switch u := r.keys.At(uint32(i)); {
		case u.calls == 0:
		case u.denied == 0:
			p.Keys++
			others = append(others, u.most)
		default:
			p.Keys++
			p.DeniedKeys++
			top = rank(top, most, ranked{uint32(i), u.denied})
		}
	}
	for _, t := range top {
		u := r.keys.At(t.key)
		p.Most = append(p.Most, Most{name(t.key), int64(u.calls), int64(u.denied)})
	}
	p.Others = useOf(others)
	return p
}

// ranked is a key with its number of denials.
type ranked struct {
	key uint32
	n   uint32
}

// rank adds a key to those with the most, of which it keeps a number. Of equals the one that was seen first comes first.
func rank(top []ranked, most int, r ranked) []ranked {
	if len(top) == most && top[most-1].n >= r.n {
		return top
	}
	at, _ := slices.BinarySearchFunc(top, r, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.key, b.key))
	})
	top = slices.Insert(top, at, r)
	return top[:min(len(top), most)]
}

// useOf returns the distribution. A percentile is that of the nearest rank.
func useOf(all []float32) Use {
	if len(all) == 0 {
		return Use{}
	}
	slices.Sort(all)
	at := func(percent int) float64 {
		part := all[max(0, (len(all)*percent+99)/100-1)]
		return math.Round(float64(part)*1e6) / 1e4
	}
	u := Use{Keys: int64(len(all)), P50: at(50), P90: at(90), P99: at(99), Max: at(100)}
	for _, part := range all {
		u.Tenths[min(max(int(part*10), 0), 9)]++
	}
	return u
}
