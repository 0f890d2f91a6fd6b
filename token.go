package headgate

import (
	"context"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/token"
)

// ID returns how the ID of the reservation's lease begins, as headgate leases prints it. Log it
// beside the job's name, to find who holds a slot. It is "" for a reservation that never held
// anything. It settles nothing.
func (r *Reservation) ID() string {
	if !r.of().Stored() {
		return ""
	}
	return r.lease.Asked.ID.Short()
}

// Token returns the reservation as text, for another process that settles it with
// Resume. A settlement does not change the text: then the other process gets ErrNotHeld. The
// text is a secret: whoever has it can settle. It contains the key, readable.
//
// It is "", which Resume refuses, in two cases. A reservation that never held anything has
// no Token: that of a denied call, and of a call that cost nothing. An unresolved reservation,
// one that no store decided, has a Token only if the limiter has a TokenKey. Its settlement
// charges the key that the text names, so a text that anybody can write must not stand for
// one. Of a ReserveFirst of several parts it has none: a text has one key.
func (r *Reservation) Token() string {
	//mutant:unresolved-token-signed
	if !r.of().Stored() || !r.lease.Single() || r.lease.Asked.Unresolved && r.key() == nil {
		return ""
	}
	a, g := &r.lease.Asked, &r.lease.Group
	//mutant:token-of-wrong-costs
	if len(g.Costs) != len(g.Policies) { // of Reserved: it settles nothing
		return ""
	}
	t := token.Token{Unresolved: a.Unresolved, Named: a.Named, ID: a.ID, Length: a.Length, Key: g.Key}
	for i, n := range g.Costs {
		p := &g.Policies[i]
		t.Policies = append(t.Policies, token.Policy{Name: p.Name, Cost: n, Shadow: p.Shadow})
	}
	return t.Text(r.key())
}

// key returns the key that signs the reservation's text.
func (r *Reservation) key() token.Key { return r.lease.Limiter.(leasing).tokens }

// Resume returns the reservation of a token that a limiter with as many policies and
// the same TokenKey made. It asks no store: its settlement shows whether the reservation
// is still held. The settlement corrects what was charged, also where this limiter's
// list has another order, other numbers, periods or shadows, or spreads the key. A Commit takes what was used in the order of this limiter. Policies are matched
// by name. Those that were renamed are matched in the order of the two lists. Without a
// TokenKey, a text that claims to be an unresolved reservation is refused. The error is an
// *InvalidError with the length of the text. Its Want has the reason: no such text, a
// signature of another key or a changed text, or a signature where there is no TokenKey.
func (l *Limiter) Resume(token string) (*Reservation, error) {
	r, err := l.parse(token)
	if err != nil {
		return &Reservation{}, l.refused(backend.Settle, "", err)
	}
	return r, nil
}

func (l *Limiter) parse(text string) (*Reservation, error) {
	bad := &InvalidError{What: "token", Value: len(text), Want: token.WantText}
	if l.zero() {
		return nil, bad
	}
	t, want := token.Parse(text, l.tokens, len(l.policies))
	if t == nil {
		bad.Want = want
		return nil, bad
	}
	//mutant:forged-unresolved
	if t.Unresolved && l.tokens == nil {
		bad.Want = token.WantKey
		return nil, bad
	}
	r, g := new(Reservation), l.group(&Call{Key: t.Key})
	g.Policies, r.lease.At, g.Costs = named(t, l.policies)
	r.lease.Listed = len(l.policies)
	//mutant:token-shards
	g.Shards = 0 // no lease is of a spread key
	asked := backend.Lease{ID: t.ID, Length: t.Length, Unresolved: t.Unresolved}
	//mutant:token-named
	asked.Named = t.Named
	request := backend.Request{Op: backend.Extend, Group: backend.Group{Key: t.Key, Policies: g.Policies, Lease: &asked}}
	//mutant:token-fields-checked
	if request.Check(context.Background(), l.shard.Capabilities()) != nil {
		return nil, bad
	}
	r.lease.Resume(leasing{l}, g, asked)
	return r, l.store.Check(g.Policies)
}

// named returns the policies of the list that stand for those of a token, which of the list each
// is, and what each was charged.
func named(t *token.Token, list []Policy) (policies []Policy, at []int, costs []int64) {
	at = t.Match(len(list), func(i int) string { return list[i].Name })
	for i, p := range t.Policies {
		//mutant:token-order
		policy := list[at[i]]
		//mutant:token-shadows
		policy.Shadow = p.Shadow
		policies, costs = append(policies, policy), append(costs, p.Cost)
	}
	return policies, at, costs
}
