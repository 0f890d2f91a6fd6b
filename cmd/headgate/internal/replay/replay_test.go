package replay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/cmd/headgate/internal/logs"
	"github.com/headgate-go/headgate/middleware/httplimit"
	"github.com/headgate-go/headgate/policyfile"
	"github.com/stretchr/testify/require"
)

// tried are policies that traffic of live is denied by, each algorithm alone and several together.
var tried = map[string]string{
	"fixed":    "{algorithm: fixed-window, limit: 20, period: 10s}",
	"sliding":  "{algorithm: sliding-window, limit: 20, period: 10s}",
	"bucketed": "{algorithm: bucketed-window, limit: 20, period: 10s, buckets: 5}",
	"log":      "{algorithm: sliding-log, limit: 20, period: 10s}",
	"compact":  "{algorithm: compact-log, limit: 20, period: 10s}",
	"bucket":   "{algorithm: token-bucket, limit: 2, period: 1s, burst: 9}",
	"civil":    "{algorithm: calendar, limit: 200, period: day, zone: Europe/Berlin}",
}

func policyOf(names ...string) string {
	text := "policies:\n"
	for _, name := range names {
		text += "  " + name + ": " + tried[name] + "\n"
	}
	return text
}

func lists() map[string]string {
	all := map[string]string{}
	var names []string
	for name := range tried {
		all[name] = policyOf(name)
		names = append(names, name)
	}
	all["all together"] = policyOf(names...)
	return all
}

// live is traffic through httplimit in virtual time, by shadows of the policies. It returns what
// they decided, and the log in two forms: JSON in microseconds of the begin, and Common.
func live(t *testing.T, policies string, calls int, enforce bool) (want []Decided, exact, coarse []byte) {
	t.Helper()
	f, err := policyfile.Parse("limits.yaml", []byte(policies), &policyfile.Options{OnFailure: headgate.FailClosed})
	require.NoError(t, err)
	list := f.For("").Policies
	for i := range list {
		list[i].Shadow = !enforce
	}
	now := time.Date(2026, 10, 24, 22, 30, 0, 0, time.UTC) // a night in which Berlin's clocks change follows
	store := memory.New(&memory.Options{Now: func() time.Time { return now }})
	var decided *headgate.Decision
	l, err := headgate.New(store, list, &headgate.Options{Observer: func(e headgate.Event) {
		if decided = &e.Decision; !enforce {
			decided = e.Shadow
		}
	}})
	require.NoError(t, err)
	m, err := httplimit.New(l, httplimit.RemoteAddr(), &httplimit.Options{Cost: func(r *http.Request) []int64 {
		n, _ := strconv.ParseInt(r.Header.Get("Cost"), 10, 64)
		costs := make([]int64, len(list))
		for i := range costs {
			costs[i] = n
		}
		return costs
	}})
	require.NoError(t, err)
	h := m(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := rand.New(rand.NewPCG(7, uint64(len(policies))))
	var a, b bytes.Buffer
	for range calls {
		now = now.Add(time.Duration(r.ExpFloat64()*float64(30*time.Millisecond)) / time.Microsecond * time.Microsecond)
		if r.IntN(400) == 0 {
			now = now.Add(time.Duration(r.IntN(40_000)) * time.Millisecond)
		}
		address := fmt.Sprintf("192.0.2.%d", r.IntN(1+r.IntN(12)))
		if r.IntN(4) == 0 {
			address = fmt.Sprintf("2001:db8:0:%x::%x", r.IntN(2), 1+r.IntN(60000))
		}
		cost := strconv.Itoa(1 + r.IntN(3))
		req := httptest.NewRequest("GET", "/", nil)
		req.RemoteAddr = "[" + address + "]:80"
		if strings.Contains(address, ".") {
			req.RemoteAddr = address + ":80"
		}
		req.Header.Set("Cost", cost)
		decided = nil
		h.ServeHTTP(httptest.NewRecorder(), req)
		require.NotNil(t, decided)
		want = append(want, Decided{Key: address, At: now, Allowed: decided.Allowed})
		fmt.Fprintf(&a, "{\"ts\":%d,\"remote\":%q,\"cost\":%s}\n", now.UnixMicro(), req.RemoteAddr, cost)
		fmt.Fprintf(&b, "%s - - [%s] \"GET / HTTP/1.1\" 200 %s\n", address, now.Format("02/Jan/2006:15:04:05 -0700"), cost)
	}
	return want, a.Bytes(), b.Bytes()
}

// replayed returns what a replay of a log decides, and its report.
func replayed(t *testing.T, policies string, log []byte, opts logs.Options, c Config) ([]Decided, *Report) {
	t.Helper()
	c.Policies = filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(c.Policies, []byte(policies), 0o600))
	opts.In = bytes.NewReader(log)
	if opts.Key == "" {
		opts.Key = "remote"
	}
	if opts.Within == "" {
		opts.Within = "second"
	}
	if opts.Unsorted == 0 {
		opts.Unsorted = 10 * time.Second
	}
	if opts.MaxKeys == 0 {
		opts.MaxKeys = 1000
	}
	if len(opts.Costs) > 0 {
		c.Cost = Cost{Place: 1}
	} else {
		c.Cost = Cost{Units: 1}
	}
	s, err := logs.Open(opts)
	require.NoError(t, err)
	var got []Decided
	c.Each = func(d Decided) { got = append(got, d) }
	r, err := New(s, c)
	require.NoError(t, err)
	report, err := r.Run(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Close())
	return got, report
}

// TestLive: a replay decides call for call what shadows did in a service that wrote the log, and
// with -enforce what the policies in force did. The log has microseconds of the begins.
func TestLive(t *testing.T) {
	for name, policies := range lists() {
		for _, enforce := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " enforced ", enforce), func(t *testing.T) {
				want, exact, coarse := live(t, policies, 6000, enforce)
				c := Config{Options: Options{Enforce: enforce}}
				got, report := replayed(t, policies, exact, logs.Options{Costs: []string{"cost"}}, c)
				require.Len(t, got, len(want))
				denied := int64(0)
				for i := range want {
					require.Equal(t, want[i].Allowed, got[i].Allowed, "call %d: %v", i, want[i])
					require.True(t, want[i].At.Equal(got[i].At))
					if !want[i].Allowed {
						denied++
					}
				}
				require.Greater(t, denied, int64(50))
				require.Equal(t, denied, report.New.Denied)
				require.EqualValues(t, 1, report.Step)

				got, report = replayed(t, policies, coarse, logs.Options{Costs: []string{"bytes"}}, c)
				require.Len(t, got, len(want))
				differ := 0
				for i := range want {
					require.Equal(t, want[i].At.Unix(), got[i].At.Unix(), "spread calls keep their second and their order")
					if want[i].Allowed != got[i].Allowed {
						differ++
					}
				}
				require.EqualValues(t, time.Second.Microseconds(), report.Step)
				t.Logf("in whole seconds: %d of %d decisions differ; %d denied, %d in microseconds; %d lie within a step",
					differ, len(want), report.New.Denied, denied, report.New.Policies[0].Within)
			})
		}
	}
}

// TestPoliciesInTurn: a shadow is charged for a call that another one denies, a policy in force is not.
func TestPoliciesInTurn(t *testing.T) {
	const policies = "policies:\n  short: {algorithm: fixed-window, limit: 1, period: 1s}\n  long: {algorithm: fixed-window, limit: 3, period: 1h}\n"
	log := ""
	for i := range 6 { // three in each of two seconds
		log += fmt.Sprintf("{\"ts\":%d,\"remote\":\"192.0.2.1\"}\n", 1700000000000+i*300+i/3*100)
	}
	_, report := replayed(t, policies, []byte(log), logs.Options{}, Config{})
	require.EqualValues(t, []int64{4, 3}, []int64{report.New.Policies[0].Denied, report.New.Policies[1].Denied})
	require.EqualValues(t, 5, report.New.Denied)
	_, report = replayed(t, policies, []byte(log), logs.Options{}, Config{Options: Options{Enforce: true}})
	require.EqualValues(t, []int64{4, 0}, []int64{report.New.Policies[0].Denied, report.New.Policies[1].Denied})
	require.EqualValues(t, 4, report.New.Denied)
}

// TestNever: a cost above a limit is a denial, of shadows and in force, and no error.
func TestNever(t *testing.T) {
	const policies = "policies: {a: {algorithm: fixed-window, limit: 5, period: 1h}, b: {algorithm: fixed-window, limit: 50, period: 1h}}"
	for _, enforce := range []bool{false, true} {
		log := `{"ts":1700000000000000,"remote":"192.0.2.1","cost":6}` + "\n" + `{"ts":1700000000000001,"remote":"192.0.2.1","cost":5}` + "\n"
		got, report := replayed(t, policies, []byte(log), logs.Options{Costs: []string{"cost"}}, Config{Options: Options{Enforce: enforce}})
		require.False(t, got[0].Allowed)
		require.True(t, got[1].Allowed, "nothing of the first was charged to a")
		require.EqualValues(t, 1, report.New.Policies[0].Denied)
		require.EqualValues(t, 0, report.New.Policies[1].Denied)
	}
}

// TestReport: the figures of a log that can be counted by hand.
func TestReport(t *testing.T) {
	const policies = "policies: {a: {algorithm: fixed-window, limit: 10, period: 1h}}"
	var log strings.Builder
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	call := func(n int, key string) {
		for range n {
			at = at.Add(time.Millisecond)
			fmt.Fprintf(&log, "%s,%s\n", at.Format("2006-01-02T15:04:05.000Z"), key)
		}
	}
	log.WriteString("time,client\n")
	call(15, "worst")
	call(5, "half")
	call(9, "nine")
	at = at.Add(time.Minute)
	call(8, "worst")
	call(11, "late")
	call(1, "one")
	_, r := replayed(t, policies, []byte(log.String()), logs.Options{Key: "client"}, Config{})
	p := r.New.Policies[0]
	require.EqualValues(t, 49, r.Calls)
	require.EqualValues(t, 5, r.Keys)
	require.EqualValues(t, 14, p.Denied)
	require.EqualValues(t, 2, p.DeniedKeys)
	require.Equal(t, []Most{{"worst", 23, 13}, {"late", 11, 1}}, p.Most)
	require.Equal(t, &Minute{time.Date(2026, 3, 1, 12, 1, 0, 0, time.UTC), 9}, p.Worst)
	require.EqualValues(t, 3, p.Others.Keys)
	require.InDeltaSlice(t, []float64{50, 90, 90, 90}, []float64{p.Others.P50, p.Others.P90, p.Others.P99, p.Others.Max}, 1e-4)

	require.Equal(t, [10]int64{1: 1, 5: 1, 9: 1}, p.Others.Tenths)
	require.Equal(t, &OverTime{Start: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Width: 1e6, Calls: append(append([]int64{29}, make([]int64, 59)...), 20), Denied: append(append([]int64{5}, make([]int64, 59)...), 9)}, r.Over)
	_, r = replayed(t, policies, []byte(log.String()), logs.Options{Key: "client"}, Config{Hash: true})
	require.NotContains(t, fmt.Sprint(r), "worst")
	require.Regexp(t, "^[0-9a-f]{16}$", r.New.Policies[0].Most[0].Key)
}

// TestOverTime: slots widen with the log, and lose no call.
func TestOverTime(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, span := range []int64{0, 299e6, 300e6, 4000e6, 86400e6, 40 * 86400e6, 9 * 365 * 86400e6} {
		var o over
		var want [3]int64
		at := 1700000000e6 + r.Int64N(1e9)
		all := map[int64]int64{}
		first := at
		for at <= first+span {
			c := logs.Call{At: at}
			denied, before := r.IntN(3) == 0, r.IntN(5) == 0
			o.add(&c, denied, before)
			want[0]++
			want[1] += map[bool]int64{true: 1}[denied]
			want[2] += map[bool]int64{true: 1}[before]
			all[at]++
			at += 1 + r.Int64N(span/1000+1)
			if span == 0 {
				break
			}
		}
		got := o.report(true)
		require.LessOrEqual(t, len(got.Calls), slots)
		require.GreaterOrEqual(t, len(got.Calls)*20, min(slots, int(span/1e6)), "not much too wide")
		require.Zero(t, got.Start.Unix()%(got.Width/1e6))
		var sum [3]int64
		for i := range got.Calls {
			sum = [3]int64{sum[0] + got.Calls[i], sum[1] + got.Denied[i], sum[2] + got.Before[i]}
			in := int64(0)
			for at, n := range all {
				if at >= got.Slot(i).UnixMicro() && at < got.Slot(i+1).UnixMicro() {
					in += n
				}
			}
			require.Equal(t, in, got.Calls[i])
		}
		require.Equal(t, want, sum)
	}
}

// TestAgainst: what changes between two files.
func TestAgainst(t *testing.T) {
	old := filepath.Join(t.TempDir(), "old.yaml")
	require.NoError(t, os.WriteFile(old, []byte("policies: {a: {algorithm: fixed-window, limit: 4, period: 1h}}"), 0o600))
	log := "time;client\n"
	for i := range 8 {
		log += fmt.Sprintf("%d.5;a\n", 1700000000+i)
	}
	log += "1700000020.5;b\n"
	_, r := replayed(t, "policies: {a: {algorithm: fixed-window, limit: 2, period: 1h}}", []byte(log), logs.Options{Key: "client"}, Config{Against: old})
	require.EqualValues(t, 6, r.New.Denied)
	require.EqualValues(t, 4, r.Old.Denied)
	require.Equal(t, &Changes{MoreDenied: 2, MoreKeys: 1, Most: []Most{{Key: "a", Denied: 2}}}, r.Changes)
}

// TestPlansAndRoutes: a call has the policies of its plan, and of its route.
func TestPlansAndRoutes(t *testing.T) {
	const policies = `
policies:
  calls: {algorithm: fixed-window, limit: 3, period: 1h}
  routes: {algorithm: fixed-window, limit: 1, period: 1h, per: route}
  running: {algorithm: in-flight, limit: 1}
plans:
  free: [calls, routes]
  paid: {calls: {limit: 5}}
  jobs: [running]
  none: {calls: {limit: unlimited}}
  gone: {calls: {limit: blocked}}
default: free
`
	log := "time,client,plan,path\n"
	for i, word := range strings.Fields("a,free,/x?1 a,free,/x?2 a,free,/y a,free,/z b,paid,/x b,paid,/x b,paid,/x b,paid,/x b,paid,/x b,paid,/x c,jobs,/ d,none,/ e,gone,/") {
		log += fmt.Sprintf("%d000,%s\n", 1700000000+i, word)
	}
	opts := logs.Options{Key: "client", Uses: []string{"plan", "path"}}
	c := Config{Options: Options{Plan: Value{Place: 1}, Per: map[string]Value{"route": {Place: 2}}}}
	got, r := replayed(t, policies, []byte(log), opts, c)
	allowed := ""
	for _, d := range got {
		allowed += map[bool]string{true: "+", false: "-"}[d.Allowed]
	}
	require.Equal(t, "+-+-"+"+++++-"+"++-", allowed)
	rows := map[string]int64{}
	for _, p := range r.New.Policies {
		rows[p.Plan+"/"+p.Policy] = p.Denied
	}
	require.Equal(t, map[string]int64{"free/calls": 1, "free/routes": 1, "paid/calls": 1}, rows)
	require.EqualValues(t, 1, r.New.Blocked)
	require.EqualValues(t, 2, r.New.Unlimited)
	require.Contains(t, r.New.Notes, "running is left out: a log does not tell how many calls run at once")
	for _, p := range r.New.Policies {
		if p.Policy == "routes" {
			require.Equal(t, "a:route:%2Fx", strings.ReplaceAll(p.Most[0].Key, "/", "%2F"))
		}
	}
}

// TestUnknownPlan: a call of a plan that the file does not have is no denial, and is counted. A policy
// names the plan or the tenant that it is of.
func TestUnknownPlan(t *testing.T) {
	const policies = `
policies: {calls: {algorithm: fixed-window, limit: 1, period: 1h}}
plans: {free: [calls], paid: {calls: {limit: 5}}}
default: free
tenants:
  rich: {plan: paid}
  own: {policies: {calls: {limit: 2}}}
`
	log := "time,client,plan\n"
	for i, word := range strings.Fields("a,free a,free b,fre c,paid") {
		log += fmt.Sprintf("%d000,%s\n", 1700000000+i, word)
	}
	got, r := replayed(t, policies, []byte(log), logs.Options{Key: "client", Uses: []string{"plan"}}, Config{Options: Options{Plan: Value{Place: 1}}})
	require.Len(t, got, 4)
	require.EqualValues(t, 1, r.New.Denied)
	require.EqualValues(t, 1, r.New.Refused)
	require.Contains(t, r.New.Reason, "fre")

	log = strings.NewReplacer("plan", "tenant", "free", "rich", "fre", "own", "paid", "other").Replace(log)
	_, r = replayed(t, policies, []byte(log), logs.Options{Key: "client", Uses: []string{"tenant"}}, Config{Options: Options{Tenant: Value{Place: 1}}})
	names := map[string]int64{}
	for _, p := range r.New.Policies {
		names[p.Plan+"/"+p.Tenant+"/"+p.Policy] = p.Calls
	}
	require.Equal(t, map[string]int64{"paid//calls": 2, "/own/calls": 1, "//calls": 1}, names)
}

// TestFull: more keys than may be kept are an error, and no figure.
func TestFull(t *testing.T) {
	c := Config{Policies: filepath.Join(t.TempDir(), "limits.yaml"), Options: Options{Cost: Cost{Units: 1}}}
	require.NoError(t, os.WriteFile(c.Policies, []byte(policyOf("fixed")), 0o600))
	log := ""
	for i := range 30 {
		log += fmt.Sprintf("{\"ts\":%d,\"remote\":\"192.0.2.%d\"}\n", 1700000000000+i, i)
	}
	for most, fails := range map[int]bool{29: true, 30: false} {
		s, err := logs.Open(logs.Options{In: strings.NewReader(log), Key: "remote", Within: "second", MaxKeys: most})
		require.NoError(t, err)
		r, err := New(s, c)
		require.NoError(t, err)
		_, err = r.Run(t.Context())
		if require.Equal(t, fails, err != nil); fails {
			require.ErrorContains(t, err, "more than 29 keys, and no two may share a count")
		}
	}
	require.NoError(t, os.WriteFile(c.Policies, []byte("policies: {a: {algorithm: fixed-window, limit: 1, period: 1h, per: route}}"), 0o600))
	c.Per = map[string]Value{"route": {Place: 1}}
	// 30 keys by 2 routes
	log += strings.ReplaceAll(log, "}", ",\"path\":\"/x\"}") + strings.ReplaceAll(log, "}", ",\"path\":\"/y\"}")
	s, err := logs.Open(logs.Options{In: strings.NewReader(log), Key: "remote", Uses: []string{"path"}, Within: "second", Unsorted: time.Minute, MaxKeys: 59})
	require.NoError(t, err)
	r, err := New(s, c)
	require.NoError(t, err)
	_, err = r.Run(t.Context())
	require.ErrorContains(t, err, "more than 59 keys of a dimension")
}
