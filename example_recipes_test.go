package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// The examples of docs/recipes.md. recipes_test.go has their tests.

// shares are a limit of each tenant that no other can take, and a pool of what is left.
type shares struct {
	of   map[string]*headgate.Limiter
	pool *headgate.Limiter
}

func newShares(store backend.Store, limit int64, floors map[string]int64) (*shares, error) {
	s := &shares{of: map[string]*headgate.Limiter{}}
	perMinute := func(name string, n int64) []headgate.Policy {
		return []headgate.Policy{{Name: name, Algorithm: algo.FixedWindow(algo.PerMinute(n)), OnFailure: headgate.FailClosed}}
	}
	for tenant, floor := range floors {
		var err error
		if s.of[tenant], err = headgate.New(store, perMinute("share", floor), nil); err != nil {
			return nil, err
		}
		limit -= floor
	}
	var err error
	s.pool, err = headgate.New(store, perMinute("pool", limit), nil)
	return s, err
}

func (s *shares) allow(ctx context.Context, tenant string) (headgate.Decision, error) {
	pool := s.pool.Part("everybody")
	if own, ok := s.of[tenant]; ok {
		return headgate.First(ctx, own.Part(headgate.Key("tenant", tenant)), pool)
	}
	return headgate.First(ctx, pool)
}

// Each tenant has a share that no other can take, and all have the rest.
func Example_guaranteedShares() {
	s, err := newShares(frozen(), 10, map[string]int64{"acme": 4, "web": 3})
	if err != nil {
		log.Fatal(err)
	}
	for _, tenant := range []string{"acme", "web"} {
		passed := 0
		for range 20 {
			d, err := s.allow(ctx, tenant)
			if err != nil {
				log.Fatal(err)
			}
			if d.Allowed {
				passed++
			}
		}
		fmt.Println(tenant, passed)
	}
	// Output:
	// acme 7
	// web 3
}

// fallback is a fast model, a cheap one, and the requests to both.
type fallback struct{ requests, fast, cheap *headgate.Limiter }

func newFallback(store backend.Store) (f *fallback, err error) {
	f = &fallback{}
	for policy, l := range map[headgate.Policy]**headgate.Limiter{
		{Name: "requests", Algorithm: algo.SlidingWindow(algo.PerMinute(4)), OnFailure: headgate.FailClosed}: &f.requests,
		{Name: "fast", Algorithm: algo.FixedWindow(algo.PerDay(2)), OnFailure: headgate.FailClosed}:          &f.fast,
		{Name: "cheap", Algorithm: algo.FixedWindow(algo.PerDay(100)), OnFailure: headgate.FailClosed}:       &f.cheap,
	} {
		if *l, err = headgate.New(store, []headgate.Policy{policy}, nil); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// model returns the model of a request; "" is a denial.
func (f *fallback) model(ctx context.Context, user string) (string, error) {
	fast, cheap := f.fast.Part(user), f.cheap.Part(user)
	fast.And = []headgate.Part{f.requests.Part(user)}
	cheap.And = fast.And
	d, err := headgate.First(ctx, fast, cheap)
	if err != nil || !d.Allowed {
		return "", err
	}
	return []string{"fast", "cheap"}[d.At], nil
}

// A user's requests go to a fast model, and to a cheap one once the fast one's share is spent.
func Example_fallback() {
	f, err := newFallback(frozen())
	if err != nil {
		log.Fatal(err)
	}
	for range 5 {
		model, err := f.model(ctx, headgate.Key("user", "42"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q\n", model)
	}
	// Output:
	// "fast"
	// "fast"
	// "cheap"
	// "cheap"
	// ""
}

// A reply is cut when the tenant's budget is gone.
func Example_stream() {
	budget, err := headgate.New(frozen(), []headgate.Policy{
		{Name: "tokens", Algorithm: algo.FixedWindow(algo.PerDay(5)), OnFailure: headgate.FailClosed},
	}, &headgate.Options{Borrow: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	for word := range strings.FieldsSeq("a reply that is too long for it") {
		d, err := budget.Allow(ctx, headgate.Key("tenant", "acme"))
		if err != nil || !d.Allowed {
			fmt.Println("… cut")
			break
		}
		fmt.Println(word)
	}
	// Output:
	// a
	// reply
	// that
	// is
	// too
	// … cut
}

var lockOut = []headgate.Policy{
	{Name: "minute", Algorithm: algo.SlidingLog(algo.PerMinute(5)), OnFailure: headgate.FailClosed},
	{Name: "hour", Algorithm: algo.SlidingLog(algo.PerHour(10)), OnFailure: headgate.FailClosed},
	{Name: "day", Algorithm: algo.SlidingLog(algo.PerDay(20)), OnFailure: headgate.FailClosed},
}

func logIn(ctx context.Context, guesses *headgate.Limiter, name string, check func() bool) (bool, error) {
	key := headgate.Key("login", name)
	r, d, err := guesses.Reserve(ctx, headgate.Call{Key: key})
	if err != nil || !d.Allowed {
		return false, err
	}
	good := check()
	ctx = context.WithoutCancel(ctx) // the client may have left
	if good {
		err = guesses.Reset(ctx, key)
	} else if err = r.Commit(ctx); errors.Is(err, headgate.ErrNotHeld) {
		err = nil // a success has ended the count meanwhile
	}
	return good && err == nil, err
}

// Of many guesses of a password five are checked.
func Example_lockOut() {
	guesses, err := headgate.New(frozen(), lockOut, nil)
	if err != nil {
		log.Fatal(err)
	}
	checked := 0
	for range 50 {
		if _, err := logIn(ctx, guesses, "ann", func() bool { checked++; return false }); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(checked, "of 50 guesses are checked")
	// Output: 5 of 50 guesses are checked
}

// agents limit the calls of tools by agents.
type agents struct{ tools, sessions, tenants *headgate.Limiter }

func newAgents(store backend.Store) (a *agents, err error) {
	a = &agents{}
	for limit, l := range map[headgate.Policy]**headgate.Limiter{
		{Name: "tool", Algorithm: algo.SlidingWindow(algo.PerMinute(3)), OnFailure: headgate.FailOpen}:        &a.tools,
		{Name: "session", Algorithm: algo.SlidingWindow(algo.PerMinute(60)), OnFailure: headgate.FailOpen}:    &a.sessions,
		{Name: "tenant", Algorithm: algo.SlidingWindow(algo.PerMinute(1000)), OnFailure: headgate.FailClosed}: &a.tenants,
	} {
		if *l, err = headgate.New(store, []headgate.Policy{limit}, nil); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *agents) call(ctx context.Context, tenant, session, tool string) (headgate.Decision, error) {
	return headgate.All(ctx,
		a.tools.Part(headgate.Key("tool", tenant, session, tool)),
		a.sessions.Part(headgate.Key("session", tenant, session)),
		a.tenants.Part(headgate.Key("tenant", tenant)),
	)
}

// A call of a tool counts for the tool in its session, for the session and for the tenant.
func Example_agent() {
	a, err := newAgents(frozen())
	if err != nil {
		log.Fatal(err)
	}
	for _, tool := range []string{"search", "search", "search", "search", "read"} {
		d, err := a.call(ctx, "acme", "session-7", tool)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(tool, d.Allowed, "by", d.Key)
	}
	// Output:
	// search true by tool:acme:session-7:search
	// search true by tool:acme:session-7:search
	// search true by tool:acme:session-7:search
	// search false by tool:acme:session-7:search
	// read true by tool:acme:session-7:read
}
