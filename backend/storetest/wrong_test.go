package storetest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"

	"github.com/stretchr/testify/require"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// wrongEnv names the wrong store to the child process that tests it.
const wrongEnv = "STORETEST_WRONG"

// wrong is the reference with one mistake in it.
type wrong struct {
	name   string
	breaks string // a case of the contract, or a part of Run: the start of its rule
	spoil  func(*reference, *Subject)
}

func (w *wrong) rule(rules []sentence) string {
	for _, c := range rules {
		if c.name == w.breaks {
			return c.sentence
		}
	}
	_, start, _ := strings.Cut(w.breaks, ": ")
	return start
}

// A suite that nothing fails tests nothing.
func TestWrongStoresFail(t *testing.T) {
	redistest.Plain(t)
	fail(t, wrongs, slices.Concat(contract, shadowed), "^TestWrongChild$/^Contract$")
}

// fail requires that the suite, run in a process of its own, fails each of them
// by the rule that it breaks. cases is a pattern for what runs the rules.
func fail(t *testing.T, all []wrong, rules []sentence, cases string) {
	for _, w := range all {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			pattern, first := cases+"/^"+w.breaks+"$", "-test.failfast"
			if part, _, ok := strings.Cut(w.breaks, ": "); ok { // its other rules may fail before
				child, _, _ := strings.Cut(cases, "/")
				pattern, first = child+"/^"+part+"$", "-test.failfast=false"
			}
			run := exec.Command(os.Args[0], "-test.run="+pattern, first, "-test.timeout=1m")
			run.Env = append(os.Environ(), wrongEnv+"="+w.name, "GORACE=atexit_sleep_ms=0") // which is a second else
			out, err := run.CombinedOutput()
			var failed *exec.ExitError
			require.True(t, errors.As(err, &failed), "the suite passes a store that %s: %v", w.name, err)
			require.Contains(t, string(out), `the contract: "`+w.rule(rules))
			require.NotContains(t, string(out), "panic:")
		})
	}
}

func TestWrongChild(t *testing.T) { Run(t, wrongHarness(t, wrongs)) }

func wrongHarness(t *testing.T, all []wrong) Harness {
	name := os.Getenv(wrongEnv)
	if name == "" {
		t.Skip("runs in a child")
	}
	w := all[slices.IndexFunc(all, func(w wrong) bool { return w.name == name })]
	return Harness{New: func(*testing.T) Subject {
		s, subject := onVirtualTime()
		w.spoil(s, &subject)
		return subject
	}}
}

func TestEachSentenceIsBrokenBySomeStore(t *testing.T) { breakAll(t, wrongs, contract) }

func breakAll(t *testing.T, all []wrong, rules []sentence) {
	for _, c := range rules {
		broken := slices.ContainsFunc(all, func(w wrong) bool { return w.breaks == c.name })
		require.True(t, broken, "no wrong store breaks: %s", c.sentence)
	}
}

// spoiled does what its do says, and the rest as the reference.
type spoiled struct {
	next  *reference
	do    doFunc
	check func([]backend.Policy) error
	close func() error
}

func (s *spoiled) Check(p []backend.Policy) error     { return s.check(p) }
func (s *spoiled) Capabilities() backend.Capabilities { return backend.Basic }
func (s *spoiled) Close() error                       { return s.close() }
func (s *spoiled) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	answer, err := s.do(s.next, ctx, *r)
	if err == nil {
		*d = answer
	}
	return err
}

func spoil(s *reference, u *Subject) *spoiled {
	w := &spoiled{next: s, do: ask, check: s.Check, close: s.Close}
	u.Store = w
	return w
}

// handing spoils what is done with the caller's own request and decision.
type handing struct {
	backend.Store
	do func(next backend.Store, ctx context.Context, r *backend.Request, d *backend.Decision) error
}

func (w *handing) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	return w.do(w.Store, ctx, r, d)
}

// handed does something more with them, once the store has answered.
func handed(f func(r *backend.Request, d *backend.Decision, err error)) func(*reference, *Subject) {
	return func(_ *reference, u *Subject) {
		u.Store = &handing{u.Store, func(next backend.Store, ctx context.Context, r *backend.Request, d *backend.Decision) error {
			err := next.Do(ctx, r, d)
			f(r, d, err)
			return err
		}}
	}
}

// left is what a caller has left behind.
type left struct {
	request  *backend.Request
	asked    backend.Request
	decision *backend.Decision
}

// late does something with that when the next call comes.
func late(f func(s *reference, l *left)) func(*reference, *Subject) {
	return func(s *reference, u *Subject) {
		var kept atomic.Pointer[left]
		handed(func(r *backend.Request, d *backend.Decision, err error) {
			if l := kept.Swap(nil); l != nil {
				f(s, l)
			}
			if errors.Is(err, context.Canceled) {
				kept.Store(&left{r, *r, d})
			}
		})(s, u)
	}
}

// doFunc is a Do with a request and a decision of its own.
type doFunc = func(*reference, context.Context, backend.Request) (backend.Decision, error)

func ask(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
	return layer.Ask(ctx, s, r)
}

func doing(do doFunc) func(*reference, *Subject) {
	return func(s *reference, u *Subject) { spoil(s, u).do = do }
}

// asking spoils the request.
func asking(f func(*backend.Request)) func(*reference, *Subject) {
	return doing(func(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
		f(&r)
		return ask(s, ctx, r)
	})
}

// answering spoils the states of the answer.
func answering(f func(r *backend.Request, d *backend.Decision, s *backend.State)) func(*reference, *Subject) {
	return doing(func(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
		d, err := ask(s, ctx, r)
		f(&r, &d, &d.State)
		for i := range r.Each {
			f(&r, &d, &r.Each[i])
		}
		return d, err
	})
}

// after does something more, once the reference has answered.
func after(f func(s *reference, r backend.Request, d backend.Decision, err error)) func(*reference, *Subject) {
	return doing(func(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
		d, err := ask(s, ctx, r)
		each := slices.Clone(r.Each)
		f(s, r, d, err)
		copy(r.Each, each)
		return d, err
	})
}

// instead makes another algorithm of each.
func instead(f func(algo.Algorithm) algo.Algorithm) func(*reference, *Subject) {
	return asking(func(r *backend.Request) {
		r.Policies = slices.Clone(r.Policies)
		for i := range r.Policies {
			r.Policies[i].Algorithm = f(r.Policies[i].Algorithm)
		}
	})
}

// force charges whether there is room or not.
func (s *reference) force(r backend.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charge(&r, s.now(), make([]backend.Reading, len(r.Policies)))
}

// forget drops what f says.
func (s *reference) forget(f func(cell) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.cells {
		if f(c) {
			delete(s.mu.cells, c)
		}
	}
}

func fold(f func(string) string) func(*reference, *Subject) {
	return asking(func(r *backend.Request) {
		if r.Key != "" {
			r.Key = "k" + f(r.Key)
		}
	})
}

func head(n int) func(string) string { return func(s string) string { return s[:min(n, len(s))] } }

// within returns what stands in the first braces, as a cluster hashes keys.
func within(s string) string {
	if _, rest, ok := strings.Cut(s, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return s
}

// checkThenAct looks and takes in two steps, and lets others in between.
func checkThenAct(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
	look := r
	look.Op = backend.Peek
	d, err := ask(s, ctx, look)
	if r.Op != backend.Take || err != nil || !d.Allowed {
		return ask(s, ctx, r)
	}
	for range 10 {
		runtime.Gosched()
	}
	s.force(r)
	d, err = ask(s, ctx, look)
	d.Allowed, d.RetryAfter = true, 0
	return d, err
}

// wholeInterval rounds a rate to a whole number of microseconds a unit, as
// those do who keep an emission interval.
func wholeInterval(a algo.Algorithm) algo.Algorithm {
	if l := a.Limit(); a.Kind() == rule.KindTokenBucket && l.Period < time.Minute {
		per := max(1, l.Period.Microseconds()/l.Events)
		return algo.TokenBucket(algo.Per(1000, time.Duration(1000*per)*tick), a.Max())
	}
	return a
}
