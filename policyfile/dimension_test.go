package policyfile

import (
	"bytes"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

const scopedFile = `policies:
  requests: {algorithm: fixed-window, limit: 100, period: 1h, on-failure: open}
  tokens: {algorithm: compact-log, limit: 1000, period: 1h, on-failure: open, per: model}
  large: {algorithm: fixed-window, limit: 5, period: 1h, on-failure: open, per: model, only: [large, huge]}
  search: {algorithm: fixed-window, limit: 3, period: 1h, on-failure: open, per: route, only: GET /search}
plans:
  free: {requests: {}, tokens: {}, large: {limit: blocked}, search: {}}
  paid: {requests: {limit: unlimited}, tokens: {limit: 5000}, large: {}, search: {limit: unlimited}}
default: free
tenants:
  acme: paid
  vip: {plan: paid, policies: {large: {limit: 50}}}
`

func names(parts []headgate.Part) (all []string) {
	for _, part := range parts {
		for i, p := range part.Limiter.Policies() {
			text := part.Call.Key + " " + p.Name
			if part.Call.Costs != nil {
				text += map[bool]string{true: " free"}[part.Call.Costs[i] == 0]
			}
			all = append(all, text)
		}
	}
	return all
}

// TestDimensions: each value of a dimension has a count of its own, and a policy may be for
// some values.
func TestDimensions(t *testing.T) {
	f, err := Parse("limits.yaml", []byte(scopedFile), nil)
	require.NoError(t, err)
	l, err := f.Limiters(memory.New(nil), nil)
	require.NoError(t, err)
	for _, c := range []struct {
		tenant string
		use    Use
		want   []string
	}{
		{"somebody", Use{}, []string{"k requests"}},
		{"somebody", Use{Of: map[string]string{"model": "small"}}, []string{"k requests", "k:model:small tokens"}},
		{"somebody", Use{Of: map[string]string{"model": "small", "route": "GET /search", "none": "x"}},
			[]string{"k requests", "k:model:small tokens", "k:route:GET /search search"}},
		{"somebody", Use{Of: map[string]string{"route": "GET /"}}, []string{"k requests"}},
		{"acme", Use{}, nil},
		{"acme", Use{Of: map[string]string{"model": "huge", "route": "GET /search"}}, []string{"k:model:huge tokens", "k:model:huge large"}},
		{"acme", Use{Of: map[string]string{"model": "a:b"}, Costs: map[string]int64{"tokens": 0, "requests": 5}}, []string{"k:model:a%3Ab tokens free"}},
		{"vip", Use{Of: map[string]string{"model": "large"}}, []string{"k:model:large tokens", "k:model:large large"}},
	} {
		parts, err := l.PartsFor(c.tenant, "k", c.use)
		require.NoError(t, err)
		require.Equal(t, c.want, names(parts), "%+v", c)
	}
	parts, err := l.PartsFor("vip", "k", Use{Of: map[string]string{"model": "large"}, Costs: map[string]int64{"tokens": 300}})
	require.NoError(t, err)
	require.Equal(t, []int64{300, 1}, parts[0].Call.Costs)
	require.EqualValues(t, 50, parts[0].Limiter.Policies()[1].Algorithm.Max())
	parts, err = l.PartsFor("vip", "k", Use{Of: map[string]string{"model": "large"}, Costs: map[string]int64{"tokens": 0, "large": 0}})
	require.NoError(t, err)
	d, err := headgate.All(t.Context(), parts...)
	require.NoError(t, err, "all costs of one key are 0")
	require.True(t, d.Allowed)
	_, err = l.PartsFor("somebody", "k", Use{Of: map[string]string{"model": "large"}})
	require.ErrorIs(t, err, headgate.ErrBlocked)
	require.False(t, f.For("somebody").Blocked)
	parts, err = l.Parts("somebody", "k")
	require.NoError(t, err)
	require.Equal(t, []string{"k requests"}, names(parts), "Parts has no dimension")
	require.Len(t, f.For("somebody").Policies, 1)
	require.Equal(t, []string{"model", "route"}, f.Dimensions())
	require.Empty(t, new(File).Dimensions())
}

// TestScoped: the policies that Plan and For leave out.
func TestScoped(t *testing.T) {
	f, err := Parse("limits.yaml", []byte(scopedFile), nil)
	require.NoError(t, err)
	plan := func(name string) List { l, _ := f.Plan(name); return l }
	text := func(l List) (text string) {
		for _, s := range l.Scoped {
			text += fmt.Sprint(s.Policy.Name, " ", s.Policy.Algorithm.Max(), s.Blocked, " ", s.Per, s.Only, "; ")
		}
		return text
	}
	const free = "tokens 1000 false model[]; large 0 true model[large huge]; search 3 false route[GET /search]; "
	require.Equal(t, free, text(plan("free")))
	require.Equal(t, free, text(plan("")))
	require.Equal(t, free, text(f.For("somebody")))
	require.Equal(t, "tokens 5000 false model[]; large 5 false model[large huge]; ", text(f.For("acme")))
	require.Equal(t, "tokens 5000 false model[]; large 50 false model[large huge]; ", text(f.For("vip")))
	plan("").Scoped[1].Only[0] = "x"
	require.Equal(t, free, text(plan("")), "the list is the caller's")
	require.Empty(t, plan("nosuch"))
	require.Empty(t, new(File).For("acme"))
}

// TestEmptyKeyStaysEmpty: a call without a tenant has no key, by a dimension neither. So it
// is refused, and calls without a tenant share no count.
func TestEmptyKeyStaysEmpty(t *testing.T) {
	f, err := Parse("limits.yaml", []byte("policies:\n  tokens: {algorithm: fixed-window, limit: 5, period: 1h, on-failure: open, per: model}\n"), nil)
	require.NoError(t, err)
	l, err := f.Limiters(memory.New(nil), nil)
	require.NoError(t, err)
	parts, err := l.PartsFor("", headgate.Key("tenant", ""), Use{Of: map[string]string{"model": "large"}})
	require.NoError(t, err)
	require.Equal(t, []string{" tokens"}, names(parts))
	_, err = headgate.All(t.Context(), parts...)
	require.ErrorAs(t, err, new(*headgate.InvalidError))
}

// TestUnknownDimension: a dimension that the file does not have limits nothing, and the
// Logger gets one line per version of the file.
func TestUnknownDimension(t *testing.T) {
	lines := new(bytes.Buffer)
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, scopedFile)
	w, err := Watch(path, memory.New(nil), &Options{Limiter: &headgate.Options{Logger: slog.New(slog.NewTextHandler(lines, nil))}})
	require.NoError(t, err)
	defer w.Close()
	for _, of := range []map[string]string{{"route": "GET /search", "model": "small"}, {"route": ""}, nil} {
		_, err = w.Limiters().PartsFor("somebody", "k", Use{Of: of})
		require.NoError(t, err)
		_, err = w.Limiters().PlanParts("paid", "k", Use{Of: of})
		require.NoError(t, err)
	}
	require.Empty(t, lines.String())
	for range 3 {
		parts, err := w.Limiters().PartsFor("somebody", "k", Use{Of: map[string]string{"rout": "GET /search"}})
		require.NoError(t, err)
		require.Equal(t, []string{"k requests"}, names(parts))
		_, err = w.Limiters().PlanParts("paid", "k", Use{Of: map[string]string{"rout": "GET /search"}})
		require.NoError(t, err)
	}
	require.Equal(t, 1, strings.Count(lines.String(), "\n"), lines)
	require.Contains(t, lines.String(), "want model or route")
}

// TestUnknownPolicy: a cost of a policy that the file does not have is charged to none, and the
// Logger gets one line. A policy that another plan has, or that is unlimited, is known.
func TestUnknownPolicy(t *testing.T) {
	lines := new(bytes.Buffer)
	f, err := Parse("limits.yaml", []byte(`policies:
  dollars: {algorithm: fixed-window, limit: 5, period: 1h, on-failure: open}
  tokens: {algorithm: fixed-window, limit: 5, period: 1h, on-failure: open}
plans: {free: {dollars: {limit: 1}}, paid: {dollars: {limit: unlimited}}}
default: free
`), nil)
	require.NoError(t, err)
	l, err := f.Limiters(memory.New(nil), &headgate.Options{Logger: slog.New(slog.NewTextHandler(lines, nil))})
	require.NoError(t, err)
	for _, name := range []string{"dollars", "tokens"} {
		_, err = l.PlanParts("paid", "k", Use{Costs: map[string]int64{name: 3}})
		require.NoError(t, err)
	}
	require.Empty(t, lines.String())
	for range 2 {
		parts, err := l.PlanParts("free", "k", Use{Costs: map[string]int64{"budget": 3}})
		require.NoError(t, err)
		require.Equal(t, []int64{1}, parts[0].Call.Costs)
	}
	require.Equal(t, 1, strings.Count(lines.String(), "\n"), lines)
	require.Contains(t, lines.String(), "want dollars or tokens")
}

// TestPlanParts: a plan has the parts of a tenant that has the plan.
func TestPlanParts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, scopedFile)
	w, err := Watch(path, memory.New(nil), nil)
	require.NoError(t, err)
	defer w.Close()
	of := Use{Of: map[string]string{"model": "large"}}
	parts, err := w.Limiters().PlanParts("paid", "k", of)
	require.NoError(t, err)
	require.Equal(t, []string{"k:model:large tokens", "k:model:large large"}, names(parts))
	_, err = w.Limiters().PlanParts("", "k", of)
	require.ErrorIs(t, err, headgate.ErrBlocked)
	parts, err = w.Limiters().PlanParts("paid", "k", Use{})
	require.NoError(t, err)
	require.Empty(t, parts, "unlimited")
	_, err = w.Limiters().PlanParts("none", "k", of)
	require.ErrorAs(t, err, new(*headgate.InvalidError))
}

// TestBrokenDimensions name the field.
func TestBrokenDimensions(t *testing.T) {
	for field, want := range map[string]string{
		"only: large": "per: missing", "per: {}": "want a name", "per: model, only: []": "an empty list", "per: model, only: [{}]": "want a name",
	} {
		_, err := Parse("limits.yaml", []byte("policies:\n  a: {algorithm: fixed-window, limit: 2, period: 1h, on-failure: open, "+field+"}\n"), nil)
		require.ErrorContains(t, err, want, field)
	}
	for _, b := range []string{"", ", per: model"} {
		_, err := Parse("limits.yaml", []byte("policies:\n  a: {algorithm: fixed-window, limit: 90, period: 1h, on-failure: open"+b+"}\n"+
			"  b: {algorithm: fixed-window, limit: 90, period: 1h, on-failure: open, per: model}\nshards: 3\n"), nil)
		require.ErrorIs(t, err, headgate.ErrUnsupported, "the call of a model has two keys")
		require.ErrorContains(t, err, "limits.yaml:4")
		require.ErrorContains(t, err, "Options.Borrow")
	}
}

// TestDimensionsOfCalls: a file that counts by a dimension which no call has is refused, and
// the line is named.
func TestDimensionsOfCalls(t *testing.T) {
	for _, c := range []struct {
		dimensions []string
		want       string
	}{
		{nil, ""}, {[]string{"model", "route", "more"}, ""},
		{[]string{"model"}, `f:5:82: policies.search.per: "route" is no dimension of the service's calls; want one of ["model"]`},
		{[]string{}, `f:3:84: policies.tokens.per: "model" is no dimension of the service's calls; want one of []`},
	} {
		_, err := Parse("f", []byte(scopedFile), &Options{Dimensions: c.dimensions})
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, c.want)
	}
}
