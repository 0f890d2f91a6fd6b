package otellimit_test

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/middleware/otellimit"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

var ctx = context.Background()

func start(t testing.TB, opts *otellimit.Options) (*otellimit.Metrics, *sdk.ManualReader) {
	t.Helper()
	reader := sdk.NewManualReader()
	m, err := otellimit.New(sdk.NewMeterProvider(sdk.WithReader(reader)), opts)
	require.NoError(t, err)
	return m, reader
}

// read returns what the reader has: for each metric the value of each label set,
// a histogram's count.
func read(t testing.TB, r *sdk.ManualReader) map[string]map[string]float64 {
	t.Helper()
	var got metricdata.ResourceMetrics
	require.NoError(t, r.Collect(ctx, &got))
	all := map[string]map[string]float64{}
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			all[m.Name+" "+m.Unit] = points(t, m.Data)
		}
	}
	return all
}

func points(t testing.TB, data metricdata.Aggregation) map[string]float64 {
	all := map[string]float64{}
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			all[text(p.Attributes)] = float64(p.Value)
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			all[text(p.Attributes)] = float64(p.Value)
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			all[text(p.Attributes)] = p.Value
		}
	case metricdata.Histogram[int64]:
		for _, p := range d.DataPoints {
			all[text(p.Attributes)] = float64(p.Count)
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			all[text(p.Attributes)] = float64(p.Count)
			require.Positive(t, p.Sum)
		}
	default:
		t.Fatalf("unexpected aggregation %T", data)
	}
	return all
}

// text is a label set as "policy=api result=allowed".
func text(set attribute.Set) string {
	var all []string
	for _, kv := range set.ToSlice() {
		key := strings.TrimPrefix(string(kv.Key), "headgate.")
		all = append(all, key+"="+kv.Value.Emit())
	}
	sort.Strings(all)
	return strings.Join(all, " ")
}

const keys = 10_000

// The metrics, by name and unit.
const (
	shadowDecisions = "headgate.shadow.decisions {decision}"
	decisions       = "headgate.decisions {decision}"
	storeDuration   = "headgate.store.duration s"
	batchSize       = "headgate.batch.size {call}"
	batchDuration   = "headgate.batch.duration s"
	policyLimit     = "headgate.policy.limit {unit}"
	policyPeriod    = "headgate.policy.period s"
	circuitState    = "headgate.circuit.state {circuit}"
	circuitChanges  = "headgate.circuit.changes {change}"
)

// TestTenThousandKeys: on real Redis, takes, denials, peeks, resets and errors of
// 10,000 keys are counted apart, in as many label sets as there are outcomes.
func TestTenThousandKeys(t *testing.T) {
	m, reader := start(t, nil)
	store, err := standalone.Open("redis://"+redistest.Shared(t).Addr(), &standalone.Options{
		Name: "primary", Budget: 10 * time.Second,
	})
	require.NoError(t, err)
	defer store.Close()
	l, err := headgate.New(store, []headgate.Policy{
		{Name: "hour", Algorithm: algo.TokenBucket(algo.PerHour(1), 2), OnFailure: headgate.FailOpen},
		{Name: "day", Algorithm: algo.SlidingLog(algo.PerDay(100)), OnFailure: headgate.FailOpen},
	}, &headgate.Options{Observer: m.Observe})
	require.NoError(t, err)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	each(func(i int) {
		key := fmt.Sprint("customer-", i)
		for range 3 { // two pass, the third is denied by the store
			_, err := l.Allow(ctx, key)
			require.NoError(t, err)
		}
		_, err := l.Allow(ctx, key) // denied from memory
		require.NoError(t, err)
		_, err = l.Peek(ctx, headgate.Call{Key: key})
		require.NoError(t, err)
		require.NoError(t, l.Reset(ctx, key))
		_, err = l.AllowN(ctx, key, 3)
		require.ErrorIs(t, err, headgate.ErrNeverAdmissible)
		_, err = l.Allow(ended, key)
		require.ErrorIs(t, err, context.Canceled)
	})
	got := read(t, reader)
	took := got[decisions]
	fromStore := took["operation=take policy=hour result=denied source=store"] // the deny cache is not that large
	require.GreaterOrEqual(t, fromStore, 1.0*keys)
	require.Equal(t, map[string]float64{
		"operation=take policy=hour result=allowed source=store":     2 * keys,
		"operation=take policy=hour result=denied source=store":      fromStore,
		"operation=take policy=hour result=denied source=deny_cache": 2*keys - fromStore,
		"operation=peek policy=hour result=denied source=store":      keys,
		"operation=reset result=done":                                keys,
		"error.type=never_admissible operation=take result=error":    keys,
		"error.type=canceled operation=take result=error":            keys,
	}, took)
	require.Equal(t, 2.0*keys+fromStore, got[storeDuration]["operation=take"])
	require.Equal(t, 1.0*keys, got[storeDuration]["operation=peek"])
	require.Equal(t, 1.0*keys, got[storeDuration]["operation=reset"])
	require.Positive(t, got[batchSize]["node=primary"])
	require.Positive(t, got[batchDuration]["node=primary"])
	require.Equal(t, map[string]float64{"algorithm=TokenBucket policy=hour": 2, "algorithm=SlidingLog policy=day": 100},
		got[policyLimit])
	require.Equal(t, map[string]float64{
		"algorithm=TokenBucket policy=hour": 7200, "algorithm=SlidingLog policy=day": 86400,
	}, got[policyPeriod])
	require.Equal(t, map[string]float64{
		"circuit.state=closed node=primary": 1, "circuit.state=open node=primary": 0,
		"circuit.state=half_open node=primary": 0, "circuit.state=gone node=primary": 0,
	}, got[circuitState])
	sets := 0
	for name, points := range got {
		sets += len(points)
		require.NotContains(t, fmt.Sprint(name, points), "customer")
	}
	t.Logf("%d keys, %d metrics, %d label sets", keys, len(got), sets)
	require.LessOrEqual(t, sets, 24)
}

// each calls f for every key, on 64 goroutines.
func each(f func(int)) {
	var running sync.WaitGroup
	for c := range 64 {
		running.Add(1)
		go func() {
			defer running.Done()
			for i := c; i < keys; i += 64 {
				f(i)
			}
		}()
	}
	running.Wait()
}

// TestDeadServer: what the failure modes decided counts by source and reason, and
// the node's circuit is open.
func TestDeadServer(t *testing.T) {
	m, reader := start(t, nil)
	server := redistest.Start(t)
	store, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{Name: "primary"})
	require.NoError(t, err)
	defer store.Close()
	l, err := headgate.New(store, []headgate.Policy{
		{Name: "api", Algorithm: algo.SlidingWindow(algo.PerMinute(100)), OnFailure: headgate.FailClosed},
	}, &headgate.Options{Observer: m.Observe})
	require.NoError(t, err)
	_, err = l.Allow(ctx, "k")
	require.NoError(t, err)
	server.Kill()
	require.Eventually(t, func() bool {
		_, err := l.Allow(ctx, "k")
		require.NoError(t, err)
		got := read(t, reader)
		return got[circuitState]["circuit.state=open node=primary"] == 1 &&
			got[circuitChanges]["circuit.state=open node=primary"] >= 1
	}, 10*time.Second, time.Millisecond)
	require.ErrorIs(t, l.Reset(ctx, "k"), headgate.ErrUnavailable)
	got := read(t, reader)
	require.Positive(t,
		got[decisions]["error.type=unavailable operation=take policy=api result=denied source=fail_closed"])
	require.Equal(t, 1.0, got[decisions]["error.type=unavailable operation=reset policy=api result=error"])
	require.Positive(t, got[storeDuration]["error.type=unavailable operation=take"])
}

func circuit(node, to string) headgate.Event {
	return headgate.Event{Type: headgate.EventCircuit, Circuit: backend.Change{Node: node, From: "closed", To: to}}
}

// TestNodesThatLeft: a node that left is no longer open, and of many that left the
// oldest are dropped.
func TestNodesThatLeft(t *testing.T) {
	m, reader := start(t, nil)
	m.Observe(circuit("a", "open"))
	m.Observe(circuit("a", backend.Gone))
	m.Observe(headgate.Event{Type: headgate.EventBatch, Batch: backend.Batch{Node: "a", Calls: 1, Keys: 1}, Duration: 1})
	state := read(t, reader)[circuitState]
	require.Equal(t, 0.0, state["circuit.state=open node=a"])
	require.Equal(t, 1.0, state["circuit.state=gone node=a"])
	for i := range 2000 {
		m.Observe(circuit(fmt.Sprint("pod-", i), "open"))
		m.Observe(circuit(fmt.Sprint("pod-", i), backend.Gone))
	}
	got := read(t, reader)
	require.Len(t, got[circuitState], 4*32)
	require.Equal(t, 1.0, got[circuitState]["circuit.state=gone node=pod-1999"])
	require.LessOrEqual(t, len(got[circuitChanges]), 2*1001)
	m.Observe(circuit("pod-1999", "closed"))
	require.Equal(t, 1.0, read(t, reader)[circuitState]["circuit.state=closed node=pod-1999"], "it is back")
}

// TestNodesThatNeverLeave: the gauge is bounded too where no node is reported as
// gone, and has the latest changes.
func TestNodesThatNeverLeave(t *testing.T) {
	m, reader := start(t, nil)
	for i := range 1500 {
		m.Observe(circuit(fmt.Sprint("pod-", i), "open"))
	}
	m.Observe(circuit("pod-700", "half_open"))
	m.Observe(headgate.Event{Type: headgate.EventBatch, Batch: backend.Batch{Node: "answers", Calls: 1, Keys: 1}, Duration: 1})
	m.Observe(circuit("pod-1500", "open"))
	state := read(t, reader)[circuitState]
	has := func(set string) bool { _, ok := state[set]; return ok }
	require.Equal(t, 4*1000, len(state))
	require.Equal(t, 1.0, state["circuit.state=open node=pod-1500"])
	require.Equal(t, 1.0, state["circuit.state=half_open node=pod-700"])
	require.False(t, has("circuit.state=open node=pod-499"))
	require.False(t, has("circuit.state=closed node=answers"), "no answer replaces a change")
}

// TestPolicyNames: a name per customer does not make a label set per customer.
func TestPolicyNames(t *testing.T) {
	m, reader := start(t, nil)
	for i := range 5000 {
		p := headgate.Policy{Name: fmt.Sprint("p", i), Algorithm: algo.SlidingLog(algo.PerMinute(5))}
		m.Observe(headgate.Event{
			Type: headgate.EventDecision, Op: backend.Take, Policies: []headgate.Policy{p},
			Decision: headgate.Decision{State: headgate.State{Policy: p.Name}},
		})
	}
	got := read(t, reader)
	require.Len(t, got[decisions], 101)
	require.Equal(t, 4900.0, got[decisions]["operation=take policy=_OTHER result=denied source=store"])
	require.Len(t, got[policyLimit], 100)
}

// TestPeriodOfABucket: limit and period belong together, so that their ratio is
// the rate.
func TestPeriodOfABucket(t *testing.T) {
	m, reader := start(t, nil)
	l, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name: "api", Algorithm: algo.TokenBucket(algo.PerSecond(100), 1000), OnFailure: headgate.FailOpen,
	}}, &headgate.Options{Observer: m.Observe})
	require.NoError(t, err)
	_, err = l.Allow(ctx, "k")
	require.NoError(t, err)
	got := read(t, reader)
	require.Equal(t, 1000.0, got[policyLimit]["algorithm=TokenBucket policy=api"])
	require.Equal(t, 10.0, got[policyPeriod]["algorithm=TokenBucket policy=api"])
}

// TestSlotsHaveNoPeriod: 0 s would look like a rate without bound.
func TestSlotsHaveNoPeriod(t *testing.T) {
	m, reader := start(t, nil)
	m.Observe(headgate.Event{Type: headgate.EventDecision, Op: backend.Reserve, Policies: []headgate.Policy{
		{Name: "running", Algorithm: algo.InFlight(20)},
	}})
	got := read(t, reader)
	require.Equal(t, 20.0, got[policyLimit]["algorithm=InFlight policy=running"])
	require.Empty(t, got[policyPeriod])
}

func TestErrorTypes(t *testing.T) {
	for want, err := range map[string]error{
		"perhaps_counted":   backend.Wrap(headgate.ErrPerhapsCounted, context.DeadlineExceeded),
		"corrupt":           &headgate.CorruptError{Key: "k"},
		"unavailable":       backend.Wrap(headgate.ErrUnavailable, context.Canceled),
		"never_admissible":  headgate.ErrNeverAdmissible,
		"closed":            headgate.ErrClosed,
		"canceled":          context.Canceled,
		"deadline_exceeded": fmt.Errorf("headgate: %w", context.DeadlineExceeded),
		"invalid":           &headgate.InvalidError{},
		"not_held":          headgate.ErrNotHeld,
		"lease_ended":       headgate.ErrLeaseEnded,
		"held":              backend.ErrHeld,
		"unsupported":       fmt.Errorf("%w: at most", headgate.ErrUnsupported),
		"_OTHER":            errors.New("of a store's own, with a key"),
	} {
		m, reader := start(t, nil)
		m.Observe(headgate.Event{Type: headgate.EventDecision, Op: backend.Reset, Err: err})
		require.Equal(t, map[string]float64{"error.type=" + want + " operation=reset result=error": 1},
			read(t, reader)[decisions])
	}
}

// TestLimitsFollow: a limit that was changed while calls came shows.
func TestLimitsFollow(t *testing.T) {
	m, reader := start(t, &otellimit.Options{Attributes: []attribute.KeyValue{attribute.String("limiter", "search")}})
	l, err := headgate.New(memory.New(nil), []headgate.Policy{
		{Name: "api", Algorithm: algo.SlidingLog(algo.PerMinute(5)), OnFailure: headgate.FailOpen},
	}, &headgate.Options{Observer: m.Observe})
	require.NoError(t, err)
	_, err = l.Allow(ctx, "k")
	require.NoError(t, err)
	more, err := l.With(headgate.Policy{
		Name: "api", Algorithm: algo.SlidingLog(algo.PerHour(7)), OnFailure: headgate.FailOpen,
	})
	require.NoError(t, err)
	_, err = more.Allow(ctx, "k")
	require.NoError(t, err)
	got := read(t, reader)
	require.Equal(t, map[string]float64{"algorithm=SlidingLog limiter=search policy=api": 7}, got[policyLimit])
	require.Equal(t, map[string]float64{"algorithm=SlidingLog limiter=search policy=api": 3600}, got[policyPeriod])
	require.NoError(t, m.Close())
	require.Empty(t, read(t, reader)[policyLimit])
}

func TestZeroAndUnknown(t *testing.T) {
	for _, m := range []*otellimit.Metrics{nil, {}} {
		m.Observe(circuit("a", "open"))
		require.NoError(t, m.Close())
	}
	m, reader := start(t, nil)
	m.Observe(headgate.Event{})
	m.Observe(headgate.Event{Type: 200})
	require.Empty(t, read(t, reader))
	global, err := otellimit.New(nil, nil)
	require.NoError(t, err)
	global.Observe(circuit("a", "open"))
	require.NoError(t, global.Close())
}

// TestObserveAllocatesNothing: it runs on the path of each call.
func TestObserveAllocatesNothing(t *testing.T) {
	m, _ := start(t, nil)
	e := headgate.Event{
		Type: headgate.EventDecision, Op: backend.Take, StoreTime: time.Millisecond,
		Policies: []headgate.Policy{{Name: "api", Algorithm: algo.SlidingLog(algo.PerMinute(5))}},
		Decision: headgate.Decision{Allowed: true, State: headgate.State{Policy: "api"}},
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { m.Observe(e) }))
	e.Shadow = &headgate.Decision{State: headgate.State{Policy: "tighter"}}
	require.Zero(t, testing.AllocsPerRun(100, func() { m.Observe(e) }))
}

func BenchmarkObserve(b *testing.B) {
	m, _ := start(b, nil)
	e := headgate.Event{
		Type: headgate.EventDecision, Op: backend.Take, StoreTime: time.Millisecond,
		Policies: []headgate.Policy{{Name: "api", Algorithm: algo.SlidingLog(algo.PerMinute(5))}},
		Decision: headgate.Decision{Allowed: true, State: headgate.State{Policy: "api"}},
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Observe(e)
		}
	})
}
