package policyfile

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

const firstFile = `policies:
  requests: {algorithm: fixed-window, limit: 5, period: 1h, on-failure: open}
  allowance: {algorithm: fixed-window, limit: 20, period: 1h, on-failure: open}
  credits: {algorithm: fixed-window, limit: 10, period: 1h, on-failure: open}
  model: {algorithm: fixed-window, limit: 9, period: 1h, on-failure: open, per: model}
plans:
  plain: [requests]
  paid: [requests, allowance, credits, model]
default: paid
first: {paid: [allowance, credits]}
tenants:
  plain: plain
  swapped: {plan: paid, first: [credits, allowance]}
  banned: {plan: paid, policies: {requests: {limit: blocked}}}
`

// TestFirstFor: a call is charged to the first policy of first that has room, and to the others of
// the list once.
func TestFirstFor(t *testing.T) {
	l, err := parse(t, firstFile, &Options{First: true}).Limiters(memory.New(nil), nil)
	require.NoError(t, err)
	ctx, u := context.Background(), Use{Costs: map[string]int64{"allowance": 10, "credits": 10}, Of: map[string]string{"model": "large"}}
	for _, want := range []string{"allowance", "allowance", "credits", ""} {
		parts, err := l.FirstFor("acme", "acme", u)
		require.NoError(t, err)
		require.Len(t, parts, 2)
		d, err := headgate.First(ctx, parts...)
		require.NoError(t, err)
		require.Equal(t, want != "", d.Allowed)
		if want != "" {
			require.Contains(t, names(parts)[d.At:], "acme "+want)
		}
	}
	parts, err := l.FirstFor("acme", "acme", Use{Of: u.Of})
	require.NoError(t, err)
	require.Equal(t, []string{"acme requests", "acme allowance", "acme requests", "acme credits"}, names(parts))
	for _, p := range parts {
		require.Equal(t, []string{"acme:model:large model"}, names(p.And))
		d, err := p.Limiter.Peek(ctx, headgate.Call{Key: "acme"})
		require.NoError(t, err)
		require.LessOrEqual(t, d.Used, int64(20))
	}
	d, err := parts[0].And[0].Limiter.Peek(ctx, headgate.Call{Key: "acme:model:large"})
	require.NoError(t, err)
	require.EqualValues(t, 3, d.Used, "once per call that passed")
}

// TestFirstOfTenants: a tenant has its own order, and a plan without first has one part. All
// policies of a list with first are never decided together.
func TestFirstOfTenants(t *testing.T) {
	f := parse(t, firstFile, &Options{First: true})
	require.Equal(t, []string{"credits", "allowance"}, f.For("swapped").First)
	l, err := f.Limiters(memory.New(nil), nil)
	require.NoError(t, err)
	for tenant, want := range map[string][]string{
		"swapped": {"k requests", "k credits", "k requests", "k allowance"}, "plain": {"k requests"},
	} {
		parts, err := l.FirstFor(tenant, "k", Use{})
		require.NoError(t, err)
		require.Equal(t, want, names(parts))
	}
	_, err = l.FirstFor("banned", "k", Use{})
	require.ErrorIs(t, err, headgate.ErrBlocked)
	require.Nil(t, l.For("acme"))
	for _, f := range []func() ([]headgate.Part, error){
		func() ([]headgate.Part, error) { return l.Parts("acme", "k") },
		func() ([]headgate.Part, error) { return l.PartsFor("acme", "k", Use{}) },
		func() ([]headgate.Part, error) { return l.PlanParts("paid", "k", Use{}) },
	} {
		_, err := f()
		require.ErrorAs(t, err, new(*headgate.InvalidError))
	}
}

// TestFirstIsRefused: the list names two or more policies of the plan that limit a key, and only of
// a service that decides so.
func TestFirstIsRefused(t *testing.T) {
	const policies = "policies: {a: {algorithm: fixed-window, limit: 5, period: 1h}, b: {limit: unlimited}, " +
		"c: {algorithm: fixed-window, limit: 5, period: 1h, per: model}, d: {algorithm: fixed-window, limit: 5, period: 1h}}\n"
	for field, want := range map[string]string{
		"[a]": "two or more", "[a, a]": "given twice", "[a, b]": `"b"`, "[a, c]": `"c"`, "[a, e]": `"e"`, "7": "no list", "{x: [a, d]}": `"x"`,
		"[a, d]\nshards: 2": "hards",
	} {
		_, err := Parse("limits.yaml", []byte(policies+"first: "+field), &Options{OnFailure: headgate.FailOpen, First: true})
		require.ErrorContains(t, err, want, field)
	}
	_, err := Parse("limits.yaml", []byte(policies+"first: [a, d]"), &Options{OnFailure: headgate.FailOpen})
	require.ErrorContains(t, err, "Options.First")
	_, err = Parse("limits.yaml", []byte(policies+"tenants: {t: {first: [a, d]}}"), &Options{OnFailure: headgate.FailOpen})
	require.ErrorContains(t, err, "Options.First")
}
