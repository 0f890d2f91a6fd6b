package httplimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestGateway: user, organisation and model are limited in requests, tokens and running
// calls. A reply is streamed and settled by the tokens that were made.
func TestGateway(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			tokens := func(n int64) headgate.Policy { return policy("tokens", algo.CompactLog(algo.PerHour(n))) }
			users := limiter(t, s, policy("requests", algo.SlidingLog(algo.PerHour(60))), tokens(4000))
			orgs := limiter(t, s, tokens(10_000))
			models := limiter(t, s, policy("running", algo.InFlight(2)))
			limit, err := NewAll(func(*http.Request) ([]headgate.Part, error) {
				return []headgate.Part{users.Part("user:ann", 1, 1000), orgs.Part("org:acme", 1000), models.Part("model:large")}, nil
			}, &Options{Settle: Reported, Units: map[string]string{"tokens": "tokens"}})
			require.NoError(t, err)
			during := headgate.State{}
			h := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "data: hello\n\n")
				w.(http.Flusher).Flush()
				d, err := models.Peek(context.Background(), headgate.Call{Key: "model:large"})
				require.NoError(t, err)
				during = d.State
				ReportPolicy(r.Context(), "tokens", 250)
				if r.URL.Path == "/panic" {
					panic("model")
				}
			}))
			w := get(h)
			require.Equal(t, `"requests";q=60;w=3600, "tokens";q=4000;w=3600;qu="tokens", "running";q=2;qu="concurrent-requests"`,
				w.Header().Get("RateLimit-Policy"), "the user has less left")
			require.EqualValues(t, 1, during.Used)
			require.Panics(t, func() { send(h, httptest.NewRequest(http.MethodGet, "/panic", nil)) })
			states := make([]headgate.State, 2)
			_, err = users.Peek(context.Background(), headgate.Call{Key: "user:ann", Each: states})
			require.NoError(t, err)
			require.Equal(t, [2]int64{2, 500}, [2]int64{states[0].Used, states[1].Used})
			d, err := orgs.Peek(context.Background(), headgate.Call{Key: "org:acme"})
			require.NoError(t, err)
			require.EqualValues(t, 500, d.Used)
			d, err = models.Peek(context.Background(), headgate.Call{Key: "model:large"})
			require.NoError(t, err)
			require.Zero(t, d.Used)
		})
	}
}

// TestUnits: a Settle function that knows one number.
func TestUnits(t *testing.T) {
	o := &Outcome{Policies: []string{"requests", "tokens", "tokens"}, Estimate: []int64{1, 50, 50}}
	require.Equal(t, []int64{1, 7, 7}, o.Units("tokens", 7))
	require.Equal(t, []int64{1, 50, 50}, o.Units("none", 7))
	require.Equal(t, []int64{1, 50, 50}, o.Estimate)
}

// TestReserved: a handler passes the tokens of its reservations on. If another process settles
// them first, the middleware changes nothing.
func TestReserved(t *testing.T) {
	l := limiter(t, newClock().store(), minute("dollars", 100))
	limit, err := New(l, RemoteAddr(), &Options{Settle: Reported, Cost: func(*http.Request) []int64 { return []int64{40} }})
	require.NoError(t, err)
	ctx := context.Background()
	require.Nil(t, Reserved(ctx))
	get(limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		all := Reserved(r.Context())
		require.Len(t, all, 1)
		swept, err := l.Resume(all[0].Token())
		require.NoError(t, err)
		require.NoError(t, swept.Commit(ctx, 7))
		Report(r.Context(), 30)
	})))
	d, err := l.Peek(ctx, headgate.Call{Key: "ip:192.0.2.1"})
	require.NoError(t, err)
	require.EqualValues(t, 7, d.Used)
}

// TestFreePartIsSettled: a part whose estimate is 0 is charged what is reported for it.
func TestFreePartIsSettled(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			users, orgs := limiter(t, s, minute("user", 100)), limiter(t, s, minute("org", 100))
			for _, costs := range [][2]int64{{1, 0}, {0, 1}, {0, 0}} {
				list := []headgate.Part{
					{Limiter: users, Call: headgate.Call{Key: fmt.Sprint("u", costs), Costs: costs[:1]}},
					{Limiter: orgs, Call: headgate.Call{Key: fmt.Sprint("o", costs), Costs: costs[1:]}},
				}
				limit, err := NewAll(func(*http.Request) ([]headgate.Part, error) { return list, nil }, &Options{Settle: Reported})
				require.NoError(t, err)
				get(limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					ReportPolicy(r.Context(), "user", 7)
					ReportPolicy(r.Context(), "org", 9)
				})))
				for i, want := range []int64{7, 9} {
					d, err := list[i].Limiter.Peek(t.Context(), headgate.Call{Key: list[i].Call.Key})
					require.NoError(t, err)
					require.Equal(t, want, d.Used, "%v: %s", costs, list[i].Call.Key)
				}
			}
		})
	}
}

// TestUnknownPolicy: units of a policy that the request does not have are reported to the
// Logger, once per limiter, with the names that it has. The estimates stay.
func TestUnknownPolicy(t *testing.T) {
	for _, settle := range []func(*Outcome) []int64{Reported, func(o *Outcome) []int64 { return o.Units("token", 7) }} {
		l, lines := logged(t, newClock(), minute("requests", 9), minute("tokens", 9))
		limit, err := New(l, RemoteAddr(), &Options{Settle: settle})
		require.NoError(t, err)
		h := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ReportPolicy(r.Context(), "token", 0) }))
		for left := range 3 {
			require.Contains(t, get(h).Header().Get("RateLimit"), fmt.Sprintf(`"tokens";r=%d`, 8-left))
		}
		require.Equal(t, 1, strings.Count(lines.String(), "\n"), lines)
		require.Contains(t, lines.String(), `want one of requests, tokens`)
	}
	l, lines := logged(t, newClock(), minute("tokens", 9))
	limit, err := New(l, RemoteAddr(), &Options{Settle: Reported})
	require.NoError(t, err)
	get(limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ReportPolicy(r.Context(), "tokens", 7) })))
	require.Empty(t, lines.String())
}

// TestFieldsAfterTheSettlement: where nothing was sent yet, the fields have the counts
// after the settlement.
func TestFieldsAfterTheSettlement(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			l := limiter(t, s, policy("failed", algo.SlidingLog(algo.Per(5, 15*time.Minute))))
			limit, err := New(l, Header("K"), &Options{Settle: failures})
			require.NoError(t, err)
			h := limit(login)
			r := requestWith("K", "k")
			r.URL.Path = "/good"
			require.Equal(t, `"failed";r=5;t=0`, send(h, r).Header().Get("RateLimit"))
			r.URL.Path = "/bad"
			require.Equal(t, `"failed";r=4;t=900`, send(h, r).Header().Get("RateLimit"))
		})
	}
}

// TestSettled: the states after the settlement, also of a response that was begun, whose
// fields are sent. A trailer of the response can have them.
func TestSettled(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			users := limiter(t, s, policy("requests", algo.SlidingLog(algo.PerHour(60))), policy("tokens", algo.CompactLog(algo.PerHour(4000))))
			orgs := limiter(t, s, policy("tokens", algo.CompactLog(algo.PerHour(9000))))
			var got Outcome
			limit, err := NewAll(func(*http.Request) ([]headgate.Part, error) {
				return []headgate.Part{users.Part("user:ann", 1, 1000), orgs.Part("org:acme", 1000)}, nil
			}, &Options{Settle: Reported, Settled: func(o *Outcome) {
				got = *o
				o.Header.Set(http.TrailerPrefix+"RateLimit", o.Header.Get("RateLimit"))
			}})
			require.NoError(t, err)
			server := httptest.NewServer(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ReportPolicy(r.Context(), "tokens", 250)
				if r.URL.Path == "/stream" {
					_, _ = io.WriteString(w, "data: hello\n\n")
					w.(http.Flusher).Flush()
				}
			})))
			defer server.Close()
			for i, path := range []string{"/stream", "/silent"} {
				resp, err := http.Get(server.URL + path)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				spent := int64(250 * (i + 1))
				require.Len(t, got.States, 3)
				require.Equal(t, [3]int64{int64(i + 1), spent, spent}, [3]int64{got.States[0].Used, got.States[1].Used, got.States[2].Used})
				require.Equal(t, []string{"requests", "tokens", "tokens"}, got.Policies)
				left := fmt.Sprintf(`"tokens";r=%d`, 4000-spent)
				require.Contains(t, resp.Trailer.Get("RateLimit"), left)
				if path == "/stream" {
					left = `"tokens";r=3000` // the fields were sent before
				}
				require.Contains(t, resp.Header.Get("RateLimit"), left)
			}
		})
	}
	for _, opts := range []*Options{{Settled: func(*Outcome) {}}, {Settle: Reported, Settled: func(*Outcome) {}}} {
		_, err := New(limiter(t, memory.New(nil), minute("p", 1)), RemoteAddr(), opts)
		require.Equal(t, opts.Settle == nil, errors.As(err, new(*headgate.InvalidError)), "it needs Settle")
	}
}

// TestSettledLate: a store that is slow to settle is not waited for, and the states are
// not known. Settled runs also if the handler panics.
func TestSettledLate(t *testing.T) {
	s := &slow{memory.New(nil), make(chan struct{}), make(chan error, 1)}
	var got *Outcome
	limit, err := New(limiter(t, s, minute("p", 9)), RemoteAddr(), &Options{Settle: Reported, Settled: func(o *Outcome) { got = o }})
	require.NoError(t, err)
	require.Panics(t, func() { get(limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("late") }))) })
	require.True(t, got.Panicked)
	require.Nil(t, got.States)
	close(s.leave)
	require.NoError(t, <-s.settled)
}

// TestStatusOfAFramework: an error that a framework writes after the middleware is no
// 200, if its adapter names the status.
func TestStatusOfAFramework(t *testing.T) {
	var got Outcome
	limit, err := New(limiter(t, memory.New(nil), minute("p", 9)), RemoteAddr(), &Options{Settle: func(o *Outcome) []int64 { got = *o; return nil }})
	require.NoError(t, err)
	h := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ReportStatus(r.Context(), 401) }))
	get(h)
	require.Equal(t, 401, got.Status)
	require.False(t, got.Wrote)
	h = limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(403)
		ReportStatus(r.Context(), 401)
	}))
	get(h)
	require.Equal(t, 403, got.Status, "what was sent counts")
	require.True(t, got.Wrote)
}

// TestHead: the body of a HEAD is not sent.
func TestHead(t *testing.T) {
	var got Outcome
	limit, err := New(limiter(t, memory.New(nil), minute("p", 9)), RemoteAddr(), &Options{Settle: func(o *Outcome) []int64 { got = *o; return nil }})
	require.NoError(t, err)
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 100)) }))
	send(h, httptest.NewRequest(http.MethodHead, "/", nil))
	require.Zero(t, got.Written)
	send(h, httptest.NewRequest(http.MethodGet, "/", nil))
	require.EqualValues(t, 100, got.Written)
}

// TestCloseNotify: frameworks that demand a CloseNotifier get one, which follows the
// request's context.
func TestCloseNotify(t *testing.T) {
	limit, err := New(limiter(t, memory.New(nil), minute("p", 9)), RemoteAddr(), &Options{Settle: Reported})
	require.NoError(t, err)
	ctx, leave := context.WithCancel(context.Background())
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		//lint:ignore SA1019 gin does so
		gone := w.(http.CloseNotifier).CloseNotify()
		select {
		case <-gone:
			t.Error("the client is there")
		default:
		}
		leave()
		<-gone
	}))
	send(h, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
}
