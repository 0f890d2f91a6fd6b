package headgate

import (
	"context"
	"slices"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/settlement"
	"github.com/headgate-go/headgate/internal/token"
)

// ID returns how the ID of the reservation's lease begins, as headgate leases prints it. Log it
// beside the job's name, to find who holds a slot. It is "" for a reservation that never held
// anything. It settles nothing.
func (r *Reservation) ID() string {
	if !r.held() || r.nothing {
		return ""
	}
	return r.id.Short()
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
	if !r.held() || r.nothing || r.with != nil || r.unresolved && r.limiter.tokens == nil {
		return ""
	}
	//mutant:token-of-wrong-costs
	if len(r.costs) != len(r.limiter.policies) { // of Reserved: it settles nothing
		return ""
	}
	t := token.Token{Unresolved: r.unresolved, Named: r.named, ID: r.id, Length: r.length, Key: r.key}
	for i, n := range r.costs {
		p := &r.limiter.policies[i]
		t.Policies = append(t.Policies, token.Policy{Name: p.Name, Cost: n, Shadow: p.Shadow})
	}
	return t.Text(r.limiter.tokens)
}

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
	r := &Reservation{
		settled: new(settlement.Settlements),
		key:     t.Key, id: t.ID, length: t.Length, named: t.Named, unresolved: t.Unresolved, listed: len(l.policies),
	}
	//mutant:token-named
	r.settled.Named = t.Named
	request := backend.Request{Op: backend.Extend, Group: backend.Group{Key: t.Key, Policies: l.Policies(), Lease: r.lease()}}
	//mutant:token-fields-checked
	if request.Check(context.Background(), l.shard.Capabilities()) != nil {
		return nil, bad
	}
	policies := named(t, r, request.Policies)
	var err error
	//mutant:token-shards
	if r.limiter = l.whole(); !slices.Equal(policies, l.policies) {
		r.limiter, err = r.limiter.With(policies...)
	}
	if err != nil {
		r.limiter, err = l.whole().With(settling(policies)...)
	}
	return r, err
}

// settling makes policies ones that can settle, also if the limit of a shadow is below
// Instances. A settlement has no failure mode, and for a Hold both modes are alike.
func settling(policies []Policy) []Policy {
	for i := range policies {
		//mutant:token-below-instances
		if policies[i].OnFailure == FailLocal {
			policies[i].OnFailure = FailOpen
		}
	}
	return policies
}

// named sets what the reservation charged of each policy of a token. It returns the
// policies of the list that stand for those.
func named(t *token.Token, r *Reservation, list []Policy) (policies []Policy) {
	at := t.Match(len(list), func(i int) string { return list[i].Name })
	for i, p := range t.Policies {
		//mutant:token-order
		policy := list[at[i]]
		//mutant:token-shadows
		policy.Shadow = p.Shadow
		policies, r.at, r.costs = append(policies, policy), append(r.at, at[i]), append(r.costs, p.Cost)
	}
	return policies
}
