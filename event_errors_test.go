package headgate_test

import (
	"context"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// verb is a call of a limiter that returns an error. Its event names op.
type verb struct {
	op  backend.Op
	ask func(ctx context.Context, l *headgate.Limiter, key string) error
}

// verbs are all that ask a store about a key.
var verbs = map[string]verb{
	"Allow": {backend.Take, func(ctx context.Context, l *headgate.Limiter, k string) error {
		_, err := l.Allow(ctx, k)
		return err
	}},
	"AllowN": {backend.Take, func(ctx context.Context, l *headgate.Limiter, k string) error {
		_, err := l.AllowN(ctx, k, 2)
		return err
	}},
	"Do":     {backend.Take, with((*headgate.Limiter).Do)},
	"Wait":   {backend.Take, with((*headgate.Limiter).WaitCall)},
	"Peek":   {backend.Peek, with((*headgate.Limiter).Peek)},
	"Record": {backend.Record, with((*headgate.Limiter).Record)},
	"AllowAtMost": {backend.AtMost, func(ctx context.Context, l *headgate.Limiter, k string) error {
		_, err := l.AllowAtMost(ctx, k, 2)
		return err
	}},
	"Reset": {backend.Reset, func(ctx context.Context, l *headgate.Limiter, k string) error { return l.Reset(ctx, k) }},
	"Reserve": {backend.Reserve, func(ctx context.Context, l *headgate.Limiter, k string) error {
		_, _, err := l.Reserve(ctx, headgate.Call{Key: k})
		return err
	}},
	"WaitReserve": {backend.Reserve, func(ctx context.Context, l *headgate.Limiter, k string) error {
		_, _, err := l.WaitReserve(ctx, headgate.Call{Key: k})
		return err
	}},
	"All": {backend.Take, func(ctx context.Context, l *headgate.Limiter, k string) error {
		_, err := headgate.All(ctx, l.Part(k), l.Part("other"))
		return err
	}},
	"ReserveAll": {backend.Reserve, func(ctx context.Context, l *headgate.Limiter, k string) error {
		_, _, err := headgate.ReserveAll(ctx, l.Part(k), l.Part("other"))
		return err
	}},
}

func with(
	ask func(*headgate.Limiter, context.Context, headgate.Call) (headgate.Decision, error),
) func(context.Context, *headgate.Limiter, string) error {
	return func(ctx context.Context, l *headgate.Limiter, key string) error {
		_, err := ask(l, ctx, headgate.Call{Key: key})
		return err
	}
}

// settlements ask about a reservation.
var settlements = map[string]struct {
	op  backend.Op
	ask func(context.Context, *headgate.Reservation) error
}{
	"Commit": {backend.Settle, func(ctx context.Context, r *headgate.Reservation) error { return r.Commit(ctx) }},
	"Cancel": {backend.Settle, func(ctx context.Context, r *headgate.Reservation) error { return r.Cancel(ctx) }},
	"Extend": {backend.Extend, func(ctx context.Context, r *headgate.Reservation) error { return r.Extend(ctx) }},
	"of a key": {backend.Settle, func(ctx context.Context, r *headgate.Reservation) error {
		return headgate.Reservations{r}.Cancel(ctx)
	}},
}

// requireErrorEvent requires that err is the one event since the last look.
func requireErrorEvent(t *testing.T, seen *events, err error, op backend.Op, key string) {
	t.Helper()
	require.Error(t, err)
	all := seen.of(headgate.EventDecision)
	require.Len(t, all, 1)
	require.Equal(t, err, all[0].Err)
	require.Equal(t, op, all[0].Op)
	require.Equal(t, key, all[0].Key)
	require.Equal(t, "api", all[0].Policies[0].Name)
	require.Zero(t, all[0].Decision)
}

// TestErrorEvents: each error that a verb returns is an event, whatever it is about.
func TestErrorEvents(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	none := context.Context(nil)
	long := strings.Repeat("k", 4097)
	for name, c := range map[string]struct {
		ctx    context.Context
		key    string
		closed bool
	}{
		"empty key":     {context.Background(), "", false},
		"long key":      {context.Background(), long, false},
		"nil context":   {none, "k", false},
		"ended context": {ended, "k", false},
		"closed store":  {context.Background(), "k", true},
	} {
		shadow := perMinute
		shadow.Name, shadow.Shadow = "shadow", true
		for list, policies := range map[string][]headgate.Policy{"plain": {perMinute}, "shadowed": {perMinute, shadow}} {
			for verb, v := range verbs {
				t.Run(name+" "+list+" "+verb, func(t *testing.T) {
					seen, s := &events{}, memory.New(nil)
					l := limiter(t, s, &headgate.Options{Observer: seen.observe}, policies...)
					if c.closed {
						require.NoError(t, s.Close())
					}
					requireErrorEvent(t, seen, v.ask(c.ctx, l, c.key), v.op, c.key)
				})
			}
			for verb, v := range settlements {
				if c.key == "k" {
					t.Run(name+" "+list+" "+verb, func(t *testing.T) {
						seen, s := &events{}, memory.New(nil)
						r := reservedSilently(t, limiter(t, s, &headgate.Options{Observer: seen.observe}, policies...), seen)
						if c.closed {
							require.NoError(t, s.Close())
						}
						requireErrorEvent(t, seen, v.ask(c.ctx, r), v.op, "k")
					})
				}
			}
		}
	}
}

// reservedSilently reserves on the key "k", and drops the events until now.
func reservedSilently(t *testing.T, l *headgate.Limiter, seen *events) *headgate.Reservation {
	t.Helper()
	r, d, err := l.Reserve(context.Background(), headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.True(t, d.Allowed)
	seen.forget()
	return r
}

// TestEventsOfWrongCalls: an error that no store and no layer was asked for is an event
// too.
func TestEventsOfWrongCalls(t *testing.T) {
	ctx, seen := context.Background(), &events{}
	l := limiter(t, memory.New(nil), &headgate.Options{Observer: seen.observe}, perMinute)
	parts := make([]headgate.Part, backend.MaxKeys+1)
	for i := range parts {
		parts[i] = l.Part(string(rune('a' + i)))
	}
	_, err := headgate.All(ctx, parts...)
	requireErrorEvent(t, seen, err, backend.Take, "a")
	seen.forget()
	_, _, err = headgate.ReserveAll(ctx, parts...)
	requireErrorEvent(t, seen, err, backend.Reserve, "a")
	seen.forget()
	_, err = l.Resume("no token")
	requireErrorEvent(t, seen, err, backend.Settle, "")

	r := reservedSilently(t, l, seen)
	requireErrorEvent(t, seen, r.Commit(ctx, 1, 2), backend.Settle, "k")
	seen.forget()
	requireErrorEvent(t, seen, headgate.Reservations{r}.Commit(ctx, []int64{1}, []int64{1}), backend.Settle, "k")
	require.NoError(t, r.Commit(ctx))
	for name, v := range settlements {
		t.Run(name+" again", func(t *testing.T) {
			seen.forget()
			err := v.ask(ctx, r)
			require.ErrorIs(t, err, headgate.ErrNotHeld)
			requireErrorEvent(t, seen, err, v.op, "k")
		})
	}
	seen.forget()
	require.NoError(t, r.Close(), "which is made for defer")
	require.Empty(t, seen.of(headgate.EventDecision))
}

// TestHoldOfNoContext: Hold of a nil context returns one that has ended.
func TestHoldOfNoContext(t *testing.T) {
	seen := &events{}
	l := limiter(t, memory.New(nil), &headgate.Options{Observer: seen.observe}, perMinute)
	ctx, release := reservedSilently(t, l, seen).Hold(context.Context(nil))
	defer release()
	invalid(t, context.Cause(ctx), "context", "nil")
	requireErrorEvent(t, seen, context.Cause(ctx), backend.Extend, "k")
	ctx, release = new(headgate.Reservation).Hold(context.Context(nil))
	defer release()
	invalid(t, context.Cause(ctx), "context", "nil")
}
