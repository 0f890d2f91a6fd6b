// Llm is a gateway in front of a language model. It limits requests, tokens and calls
// that run at once, for each tenant and for its organisation, in one decision. How many
// tokens a reply has is known only at its end. So the gateway reserves the most that
// there can be, streams, and settles by what was made. Budget.go does the same with
// money: budgets of a month for an organisation, a team, a user, and a key by model, in
// micro-dollars.
//
//	go run ./examples/llm                                  at once, in memory, on a clock of its own
//	go run ./examples/llm -redis redis://localhost:6379    on a server, with a second of waiting
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log"
	"os"
	"text/tabwriter"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
)

func main() {
	redis := flag.String("redis", "", "URL of a Redis server; empty: in memory")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *redis); err != nil {
		log.Fatal(err)
	}
}

// run plays the scenes on the server of the URL, or in memory where it is empty.
func run(ctx context.Context, w io.Writer, redis string) error {
	if redis == "" {
		now := time.Unix(1_745_000_000, 0)
		store := memory.New(&memory.Options{Now: func() time.Time { return now }})
		return play(ctx, w, store, func(d time.Duration) { now = now.Add(d) })
	}
	// The budget is far above the default: what is shown is the counting.
	store, err := standalone.Open(redis, &standalone.Options{Budget: 10 * time.Second})
	if err != nil {
		return err
	}
	defer store.Close()
	return play(ctx, w, store, time.Sleep)
}

// stage is the gateway and a table of what it counts.
type stage struct {
	*gateway
	web, batch call // of two tenants of one organisation
	names      map[string]string
	table      *tabwriter.Writer
}

// play shows what is counted after each call. The keys are of this run only.
func play(ctx context.Context, w io.Writer, store backend.Store, sleep func(time.Duration)) (err error) {
	g, err := newGateway(store, time.Minute)
	if err != nil {
		return err
	}
	id := fmt.Sprint(time.Now().UnixNano())
	org := headgate.Key("org", id)
	s := &stage{gateway: g, table: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0),
		web:   call{headgate.Key("tenant", id, "web"), org, 50, 1000},
		batch: call{headgate.Key("tenant", id, "batch"), org, 50, 3900}}
	s.names = map[string]string{s.web.tenant: "web", s.batch.tenant: "batch", org: "acme"}
	defer func() {
		err = errors.Join(err, g.tenants.Reset(ctx, s.web.tenant), g.tenants.Reset(ctx, s.batch.tenant), g.orgs.Reset(ctx, org))
	}()
	fmt.Fprintln(s.table, "call\tanswer\ttenant\ttokens\trunning\torg\ttokens\trunning")
	for _, scene := range []func(context.Context) error{s.streams, s.leaves, s.third, s.shared} {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	if err := s.crash(ctx, sleep); err != nil {
		return err
	}
	return s.table.Flush()
}

// words is a reply of n tokens. at is called before the token of that number.
func words(n, at int, f func()) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range n {
			if i == at {
				f()
			}
			if !yield("word ") {
				return
			}
		}
	}
}

// streams shows the estimate during the reply, and the real count after it.
func (s *stage) streams(ctx context.Context) error {
	var during error
	d, err := s.complete(ctx, s.web, words(250, 100, func() {
		during = s.row(ctx, "a reply begins, of at most 1,000 tokens", "", s.web)
	}), io.Discard)
	return errors.Join(err, during, s.row(ctx, "it ends after 250", s.answer(d), s.web))
}

// leaves is a client that leaves after 100 tokens.
func (s *stage) leaves(ctx context.Context) error {
	inner, leave := context.WithCancel(ctx)
	d, err := s.complete(inner, s.web, words(250, 99, leave), io.Discard)
	if !errors.Is(err, context.Canceled) {
		return fmt.Errorf("a client that left got %v", err)
	}
	return s.row(ctx, "a client leaves after 100 tokens", s.answer(d), s.web)
}

// third asks for a third call of a tenant while two run.
func (s *stage) third(ctx context.Context) error {
	var third headgate.Decision
	var errs [3]error
	_, errs[0] = s.complete(ctx, s.web, words(50, 0, func() {
		_, errs[1] = s.complete(ctx, s.web, words(50, 0, func() {
			third, errs[2] = s.complete(ctx, s.web, words(50, 0, func() {}), io.Discard)
		}), io.Discard)
	}), io.Discard)
	return errors.Join(errors.Join(errs[:]...), s.row(ctx, "a third call while two run", s.answer(third), s.web))
}

// shared is a call for which the tenant has room and the organisation has not. What
// the tenant reserved before is given back in the background.
func (s *stage) shared(ctx context.Context) error {
	d, err := s.complete(ctx, s.batch, words(3900, 0, func() {}), io.Discard)
	for err == nil {
		var states []headgate.State
		if states, err = peek(ctx, s.tenants, s.batch.tenant); err == nil && states[2].Used == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return errors.Join(err, s.row(ctx, "a reply of at most 3,900 tokens", s.answer(d), s.batch))
}

// crash is a process that dies with a call under way: nothing settles it. Its slots
// are free when the lease ends. What it reserved stays charged until it has aged,
// since it is unknown how much the model has made.
func (s *stage) crash(ctx context.Context, sleep func(time.Duration)) error {
	dying := &gateway{s.tenants, s.orgs, time.Second}
	_, d, err := dying.reserve(ctx, s.web)
	if err = errors.Join(err, d.Err); err != nil {
		return err
	}
	if err := s.row(ctx, "a process dies in a call", s.answer(d), s.web); err != nil {
		return err
	}
	for _, of := range []headgate.Part{s.tenants.Part(s.web.tenant), s.orgs.Part(s.web.org)} {
		states, err := peek(ctx, of.Limiter, of.Call.Key)
		if err != nil {
			return err
		}
		sleep(states[2].ResetAfter)
	}
	return s.row(ctx, "its lease of 1 s has ended", "", s.web)
}

// answer words a decision: which policy of which key denied it.
func (s *stage) answer(d headgate.Decision) string {
	if d.Allowed {
		return "passes"
	}
	return fmt.Sprintf("denied by %s of %s", d.Policy, s.names[d.Key])
}

// row prints the counts of a call's tenant and organisation.
func (s *stage) row(ctx context.Context, what, answer string, c call) error {
	tenant, err := peek(ctx, s.tenants, c.tenant)
	if err != nil {
		return err
	}
	org, err := peek(ctx, s.orgs, c.org)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.table, "%s\t%s\t%s\t%d\t%d\t%s\t%d\t%d\n", what, answer,
		s.names[c.tenant], tenant[1].Used, tenant[2].Used, s.names[c.org], org[1].Used, org[2].Used)
	return nil
}

// peek returns the states of requests, tokens and running, and counts nothing.
func peek(ctx context.Context, l *headgate.Limiter, key string) ([]headgate.State, error) {
	states := make([]headgate.State, 3)
	d, err := l.Peek(ctx, headgate.Call{Key: key, Each: states})
	return states, errors.Join(err, d.Err)
}
