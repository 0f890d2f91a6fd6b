package httplimit

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestWrongUnitsAreLogged: units that do not fit the policies leave the estimates, and the
// Logger gets one line per limiter. An empty list is no fault.
func TestWrongUnitsAreLogged(t *testing.T) {
	for _, used := range [][]int64{{150}, {1, 2, 3}, {-5, 1}, {1, 1 << 60}, {}, {1, 7}} {
		for name, c := range map[string]struct {
			settle func(*Outcome) []int64
			report func(*http.Request)
		}{
			"Report": {Reported, func(r *http.Request) { Report(r.Context(), used...) }},
			"Settle": {func(*Outcome) []int64 { return used }, func(*http.Request) {}},
			"ReportPolicy": {Reported, func(r *http.Request) {
				if len(used) == 2 {
					ReportPolicy(r.Context(), "requests", used[0])
					ReportPolicy(r.Context(), "tokens", used[1])
				} else {
					Report(r.Context(), used...)
				}
			}},
		} {
			l, lines := logged(t, newClock(), minute("requests", 100), minute("tokens", 100))
			limit, err := New(l, RemoteAddr(), &Options{Settle: c.settle, Cost: func(*http.Request) []int64 { return []int64{1, 10} }})
			require.NoError(t, err)
			h := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { c.report(r) }))
			wrong, left := 1, 100-3*10
			if len(used) == 0 {
				wrong = 0
			}
			if len(used) == 2 && used[1] == 7 {
				wrong, left = 0, 100-3*7
			}
			for range 2 {
				get(h)
			}
			require.Contains(t, get(h).Header().Get("RateLimit"), fmt.Sprintf(`"tokens";r=%d;`, left), "%s %v", name, used)
			require.Equal(t, wrong, strings.Count(lines.String(), "\n"), "%s %v: %s", name, used, lines)
			require.Equal(t, wrong, strings.Count(lines.String(), "do not fit the policies"), lines)
		}
	}
}

// TestErrorsOfLimitersAreLogged: an error of the limiter, which is a 500, has a line, as one
// of the key has.
func TestErrorsOfLimitersAreLogged(t *testing.T) {
	for name, serve := range map[string]func(*headgate.Limiter, *httptest.ResponseRecorder, *http.Request){
		"Func": func(l *headgate.Limiter, w *httptest.ResponseRecorder, r *http.Request) {
			costs := Func(func(*http.Request) (headgate.Call, error) { return headgate.Call{Key: "k", Costs: []int64{5}}, nil })
			wrap(t, l, costs, nil).ServeHTTP(w, r)
		},
		"NewAll": func(l *headgate.Limiter, w *httptest.ResponseRecorder, r *http.Request) {
			all(t, nil, headgate.Part{Call: headgate.Call{Key: "k"}}, l.Part("k", 5, 5, 5)).ServeHTTP(w, r)
		},
		"Settle": func(l *headgate.Limiter, w *httptest.ResponseRecorder, r *http.Request) {
			all(t, &Options{Settle: Reported}, l.Part("k", 5, 5, 5)).ServeHTTP(w, r)
		},
		"Allow": func(l *headgate.Limiter, w *httptest.ResponseRecorder, r *http.Request) {
			require.False(t, Allow(w, r, nil, l.Part("k", 5, 5, 5)))
		},
		"Allow with wrong options": func(l *headgate.Limiter, w *httptest.ResponseRecorder, r *http.Request) {
			require.False(t, Allow(w, r, &Options{IPv6Prefix: 200}, l.Part("k")))
		},
	} {
		l, lines := logged(t, newClock(), minute("requests", 9), minute("tokens", 9))
		for range 3 {
			w := httptest.NewRecorder()
			serve(l, w, requestWith())
			require.Equal(t, 500, w.Code, name)
		}
		require.Equal(t, 1, strings.Count(lines.String(), "\n"), "%s: %s", name, lines)
		require.Contains(t, lines.String(), "error=", name)
	}
	l, lines := logged(t, newClock(), minute("p", 1))
	require.Equal(t, 403, get(all(t, nil, l.Part("k", 5))).Code)
	require.Equal(t, 403, get(all(t, nil, l.Part("k", 5))).Code)
	require.Empty(t, lines.String(), "a cost that can never be granted")
}

// TestErrorsWithoutALimiter: an error of NewAll's function that no limiter's Logger can get
// goes to the server's ErrorLog, at most once per second. OnError replaces that.
func TestErrorsWithoutALimiter(t *testing.T) {
	serve := func(opts *Options, err error, list ...headgate.Part) string {
		limit, newErr := NewAll(func(*http.Request) ([]headgate.Part, error) { return list, err }, opts)
		require.NoError(t, newErr)
		lines := new(bytes.Buffer)
		server := httptest.NewUnstartedServer(limit(fine))
		server.Config.ErrorLog = log.New(lines, "", 0)
		server.Start()
		for range 3 {
			resp, err := http.Get(server.URL)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		server.Close() // no handler writes to lines any more
		return lines.String()
	}
	const line = "headgate: a request can't be counted: boom\n"
	require.Equal(t, line, serve(nil, errors.New("boom")))
	require.Equal(t, line, serve(nil, errors.New("boom"), new(headgate.Limiter).Part("k")), "the zero limiter logs nothing")
	require.Contains(t, serve(nil, nil, headgate.Part{Call: headgate.Call{Key: "k"}}), "zero Limiter")
	require.Empty(t, serve(nil, headgate.ErrBlocked))
	require.Empty(t, serve(nil, &RequestError{What: "key", Text: "is odd"}), "a client's own mistake")
	require.Empty(t, serve(&Options{OnError: WriteError}, errors.New("boom")))
	lines := new(bytes.Buffer)
	before := log.Writer()
	log.SetOutput(lines)
	defer log.SetOutput(before)
	limit, err := NewAll(func(*http.Request) ([]headgate.Part, error) { return nil, errors.New("boom") }, nil)
	require.NoError(t, err)
	require.Equal(t, 500, get(limit(fine)).Code)
	require.Contains(t, lines.String(), line, "without a server, as net/http itself")
}

// TestUnitsOfNoPolicy: New refuses a name in Units that its limiter lacks. NewAll logs that
// error at its first request, once: a request of another plan may have the policy.
func TestUnitsOfNoPolicy(t *testing.T) {
	l, lines := logged(t, newClock(), minute("requests", 9), minute("tokens", 9))
	_, err := New(l, RemoteAddr(), &Options{Units: map[string]string{"tokens": "tokens", "nope": "tokens"}})
	var invalid *headgate.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "nope", invalid.Value)
	_, err = New(l, RemoteAddr(), &Options{Units: map[string]string{"tokens": "tokens"}})
	require.NoError(t, err)
	require.Equal(t, 204, get(all(t, &Options{Units: map[string]string{"tokens": "tokens"}}, l.Part("k"))).Code)
	require.Empty(t, lines.String())
	plan := &Options{Units: map[string]string{"another": "tokens", "tokens": "tokens"}}
	h := all(t, plan, l.Part("k"), l.Part("l"))
	require.Empty(t, lines.String())
	require.Equal(t, 204, get(h).Code)
	require.Contains(t, lines.String(), "Units has the name of a policy that the first request does not have")
	require.Contains(t, lines.String(), `another\": want one of requests, tokens"`)
	before := lines.String()
	require.Equal(t, 204, get(h).Code)
	require.Equal(t, before, lines.String())
	require.Equal(t, 500, get(all(t, plan, headgate.Part{Call: headgate.Call{Key: "k"}})).Code)
}

// TestOwnAnswersOfUsersAreNotCached: no-store is set before OnDenied and OnError, which may
// replace it.
func TestOwnAnswersOfUsersAreNotCached(t *testing.T) {
	l := limiter(t, memory.New(nil), minute("p", 1))
	opts := &Options{
		OnDenied: func(w http.ResponseWriter, _ *http.Request, d Denial) { w.WriteHeader(d.Status) },
		OnError:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(418) },
	}
	h := wrap(t, l, RemoteAddr(), opts)
	require.Empty(t, get(h).Header().Get("Cache-Control"))
	for want, h := range map[int]http.Handler{429: h, 418: wrap(t, l, Header("K"), opts)} {
		w := get(h)
		require.Equal(t, want, w.Code)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	}
}
