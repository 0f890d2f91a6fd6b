package headgate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestFirstRandom sends random First, ReserveFirst, Commit and Cancel of two to five parts. It
// compares all counts after each with a model from the specification. One part is charged by a
// pass, and none by a denial. Replies get lost. With a deny cache nothing else changes.
func TestFirstRandom(t *testing.T) {
	redistest.Plain(t)
	long := redistest.Steps(6_000, 1_000_000)
	for _, cached := range []bool{false, true} {
		t.Run(fmt.Sprint("memory, deny cache ", cached), func(t *testing.T) {
			firstRandom(t, memory.New(nil), cached, long)
		})
		t.Run(fmt.Sprint("key by key, deny cache ", cached), func(t *testing.T) {
			firstRandom(t, oneKey(memory.New(nil)), cached, long/4)
		})
		t.Run(fmt.Sprint("server, deny cache ", cached), func(t *testing.T) {
			firstRandom(t, standalone.New(redistest.Start(t).Client(t), patient), cached, redistest.Steps(2_000, 250_000))
		})
		t.Run(fmt.Sprint("cluster, deny cache ", cached), func(t *testing.T) {
			s := cluster.New(redistest.SharedCluster(t).Client(t), &cluster.Options{Budget: 2 * time.Second})
			t.Cleanup(func() { s.Close() })
			firstRandom(t, s, cached, redistest.Steps(1_000, 100_000))
		})
	}
}

// firstModel is what the specification says of limits that never age: the units of each count.
type firstModel struct {
	t      *testing.T
	ctx    context.Context
	rand   *rand.Rand
	store  *lossy
	at     []*headgate.Limiter
	limits []int64
	used   map[string]int64 // by the index of the limiter and the key
	open   []firstHeld
	round  int
	counts struct{ steps, passed, later, denied, lost, settled int }
}

// firstHeld is a reservation: what each of its counts was charged, by the reservation's index.
type firstHeld struct {
	rs      headgate.Reservations
	names   []string
	charged []int64 // the estimate; 0: not charged
	begins  []int   // the part of each
}

func firstRandom(t *testing.T, s backend.Store, cached bool, steps int) {
	m := &firstModel{t: t, ctx: context.Background(), rand: rand.New(rand.NewPCG(redistest.Seed(t), 4)), used: map[string]int64{}}
	m.store = lossyOf(s)
	capable := s.Capabilities()
	m.store.can = &capable
	if cached {
		m.store.shared = new(layer.Shared)
	}
	m.limits = []int64{9, 14, 30, 22}
	base := limiter(t, m.store, nil, firstLevel(0, m.limits[0]))
	for i, n := range m.limits {
		l, err := base.With(firstLevel(i, n))
		require.NoError(t, err)
		m.at = append(m.at, l)
	}
	begin := time.Now()
	for m.counts.steps < steps {
		m.step()
	}
	t.Logf("%+v, %.0f per second", m.counts, float64(m.counts.steps)/time.Since(begin).Seconds())
	require.Positive(t, min(m.counts.later, m.counts.denied, m.counts.lost, m.counts.settled))
}

func firstLevel(i int, limit int64) headgate.Policy {
	return headgate.Policy{Name: fmt.Sprint("level", i), Algorithm: algo.FixedWindow(algo.Per(limit, algo.MaxPeriod)), OnFailure: headgate.FailOpen}
}

func (m *firstModel) name(i int, key string) string { return fmt.Sprint(i, " ", key) }

// step decides or settles a call.
func (m *firstModel) step() {
	m.counts.steps++
	if m.round++; m.round%60 == 0 { // other keys, since nothing ages
		m.used, m.open = map[string]int64{}, nil
	}
	if len(m.open) > 0 && m.rand.IntN(3) == 0 {
		i := m.rand.IntN(len(m.open))
		m.settle(m.open[i])
		m.open = slices.Delete(m.open, i, i+1)
		return
	}
	m.decide()
}

// decide draws a First or a ReserveFirst.
func (m *firstModel) decide() {
	var parts []headgate.Part
	h := firstHeld{}
	for p := range 2 + m.rand.IntN(4) {
		var part headgate.Part
		used := map[string]bool{}
		for k := range 1 + m.rand.IntN(3)/2 {
			i, key := m.rand.IntN(len(m.at)), fmt.Sprint(m.t.Name(), " ", m.round/60, " ", m.rand.IntN(2))
			if used[m.name(i, key)] {
				continue
			}
			used[m.name(i, key)] = true
			n := 1 + m.rand.Int64N(3)
			one := m.at[i].Part(key, n)
			if h.names, h.charged, h.begins = append(h.names, m.name(i, key)), append(h.charged, n), append(h.begins, p); k == 0 {
				part = one
			} else {
				part.And = append(part.And, one)
			}
		}
		parts = append(parts, part)
	}
	want := m.first(&h)
	reserves, lose := m.rand.IntN(2) == 0, m.rand.IntN(10) == 0
	op := backend.OpsOf(backend.Take, backend.Reserve)
	if lose && reserves {
		if m.rand.IntN(2) == 0 {
			m.store.lose(0, op)
		} else {
			m.store.lose(op, 0)
		}
	}
	var d headgate.Decision
	var err error
	if reserves {
		h.rs, d, err = headgate.ReserveFirst(m.ctx, parts...)
	} else {
		d, err = headgate.First(m.ctx, parts...)
	}
	require.NoError(m.t, err)
	m.store.lose(0, 0)
	m.quiet()
	if lose && reserves {
		m.lost(h, want, d)
		return
	}
	require.Equal(m.t, want >= 0, d.Allowed, "%v of %v: %+v", h, m.used, d)
	require.NoError(m.t, d.Err)
	if want < 0 {
		m.counts.denied++
	} else {
		require.Equal(m.t, want, d.At, "%v of %v: %+v", h, m.used, d)
		if m.counts.passed++; want > 0 {
			m.counts.later++
		}
	}
	for i := range h.names {
		if h.begins[i] != want {
			h.charged[i] = 0
		}
		m.used[h.names[i]] += h.charged[i]
	}
	m.compare(&h)
	if reserves && d.Allowed {
		m.open = append(m.open, h)
	}
}

// first returns the first part that has room, -1 if none has.
func (m *firstModel) first(h *firstHeld) int {
	for p := range 1 + h.begins[len(h.begins)-1] {
		fits := true
		for i, name := range h.names {
			if h.begins[i] == p && m.used[name]+h.charged[i] > m.limits[name[0]-'0'] {
				fits = false
			}
		}
		if fits {
			return p
		}
	}
	return -1
}

// lost settles a ReserveFirst whose request or answer was lost. What its counts say shows whether
// it was charged.
func (m *firstModel) lost(h firstHeld, want int, d headgate.Decision) {
	m.counts.lost++
	if !d.Allowed { // what is known stands
		require.Equal(m.t, headgate.FromDenyCache, d.Source)
		m.compare(&h)
		return
	}
	part := -1
	for _, name := range h.names {
		if m.peek(name) == m.used[name] {
			continue
		}
		if part = want; m.store.Capabilities().Keys == 1 {
			part = d.At
		}
	}
	for i, name := range h.names { // of several keys of a cluster perhaps only the first was asked
		h.charged[i] = m.peek(name) - m.used[name]
	}
	for i, name := range h.names {
		if h.begins[i] == part {
			m.used[name] += h.charged[i]
		} else {
			h.charged[i] = 0
		}
	}
	if part < 0 {
		part = d.At
	}
	m.settleBy(h, part)
}

// settle settles by less or more than the estimate, or cancels.
func (m *firstModel) settle(h firstHeld) {
	part := 0
	for i, n := range h.charged {
		if n > 0 {
			part = h.begins[i]
		}
	}
	m.settleBy(h, part)
}

// settleBy settles a reservation that leaves what was used in one part.
func (m *firstModel) settleBy(h firstHeld, part int) {
	m.counts.settled++
	actual := make([][]int64, len(h.names))
	for i := range actual {
		actual[i] = []int64{m.rand.Int64N(5)}
	}
	if m.rand.IntN(3) == 0 {
		for i := range actual {
			actual[i][0] = 0
		}
		require.NoError(m.t, h.rs.Cancel(m.ctx))
	} else {
		if lose := m.rand.IntN(10) == 0; lose {
			m.store.lose(0, onSettle)
			_ = h.rs.Commit(m.ctx, actual...)
			m.store.lose(0, 0)
		}
		require.NoError(m.t, h.rs.Commit(m.ctx, actual...))
	}
	for i, name := range h.names {
		if h.begins[i] == part {
			m.used[name] += actual[i][0] - h.charged[i]
		}
	}
	m.compare(&h)
}

func (m *firstModel) peek(name string) int64 {
	d, err := m.at[name[0]-'0'].Peek(m.ctx, headgate.Call{Key: name[2:], Costs: []int64{0}})
	require.NoError(m.t, err)
	return d.Used
}

func (m *firstModel) compare(h *firstHeld) {
	for _, name := range h.names {
		require.Equal(m.t, m.used[name], m.peek(name), "%s after step %d: %+v", name, m.counts.steps, h)
	}
}

// quiet waits until nothing is given back any more.
func (m *firstModel) quiet() {
	for headgate.Cancelling(m.at[0]) > 0 {
		time.Sleep(50 * time.Microsecond)
	}
}
