package httplimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// firstOf wraps a handler by the parts of a First. It reports what a request used, if the
// header has it.
func firstOf(t testing.TB, opts *Options, list ...headgate.Part) http.Handler {
	t.Helper()
	limit, err := NewFirst(func(*http.Request) ([]headgate.Part, error) { return list, nil }, opts)
	require.NoError(t, err)
	return limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if opts != nil && opts.Settle != nil {
			ReportPolicy(r.Context(), "tokens", 7)
		}
		w.WriteHeader(204)
	}))
}

// used returns the units of a key.
func used(t testing.TB, l *headgate.Limiter, key string) (units []int64) {
	t.Helper()
	each := make([]headgate.State, len(l.Policies()))
	_, err := l.Peek(context.Background(), headgate.Call{Key: key, Each: each})
	require.NoError(t, err)
	for _, s := range each {
		units = append(units, s.Used)
	}
	return units
}

// TestNewFirst: a request is charged to the first part that has room. The fields, and a denial, have
// the policies of that part, or of the one that passes soonest.
func TestNewFirst(t *testing.T) {
	s := newClock().store()
	allowance, user := limiter(t, s, minute("allowance", 1)), limiter(t, s, minute("user", 9))
	credits := limiter(t, s, minute("credits", 2))
	first := allowance.Part("ann")
	first.And = []headgate.Part{user.Part("ann")}
	h := firstOf(t, &Options{XRateLimit: true}, first, credits.Part("ann"))
	for _, want := range []string{`"allowance";r=0;t=40, "user";r=8;t=40`, `"credits";r=1;t=40`, `"credits";r=0;t=40`} {
		w := get(h)
		require.Equal(t, 204, w.Code)
		require.Equal(t, want, w.Header().Get("RateLimit"))
	}
	require.Equal(t, []int64{1}, used(t, user, "ann"))
	w := get(h)
	require.Equal(t, 429, w.Code)
	require.Equal(t, "40", w.Header().Get("Retry-After"))
	require.Equal(t, []string{"allowance"}, readProblem(t, w).Violated)
	require.Equal(t, "1", w.Header().Get("X-RateLimit-Limit"))
}

// TestFirstKeys: a key may be in several parts, and not twice in one. What EmptyPasses leaves out
// is a key, and the next one begins its part.
func TestFirstKeys(t *testing.T) {
	s := newClock().store()
	a, b := limiter(t, s, minute("a", 1)), limiter(t, s, minute("b", 1))
	twice, empty := a.Part("k"), a.Part("")
	twice.And, empty.And = []headgate.Part{a.Part("k")}, []headgate.Part{b.Part("k")}
	require.Equal(t, 400, get(firstOf(t, nil, twice)).Code)
	require.Equal(t, 400, get(firstOf(t, nil, a.Part("x"), empty)).Code)
	require.Equal(t, 204, get(firstOf(t, nil)).Code, "no parts are no limit")
	h := firstOf(t, &Options{EmptyKey: EmptyPasses}, a.Part("k"), empty)
	for range 2 {
		require.Equal(t, 204, get(h).Code)
	}
	require.Equal(t, 429, get(h).Code)
	require.Equal(t, []int64{1}, used(t, b, "k"))
	require.Equal(t, 204, get(firstOf(t, nil, a.Part("l"), a.Part("l"))).Code)
	var many []headgate.Part
	for i := range backend.MaxKeys + 1 {
		many = append(many, a.Part(strings.Repeat("m", 1+i)))
	}
	require.Equal(t, 400, get(firstOf(t, nil, many...)).Code)
	defer debug.SetMaxStack(debug.SetMaxStack(1 << 20))
	endless := a.Part("n")
	endless.And = []headgate.Part{endless}
	endless.And[0].And = endless.And
	require.Equal(t, 400, get(firstOf(t, nil, endless)).Code)
}

// TestFirstIsSettled: what a request has used is charged to its part. If the answer of the store is
// lost, it is charged to the part that the store has charged, by the names of the policies.
func TestFirstIsSettled(t *testing.T) {
	for _, lost := range []bool{false, true} {
		s := &replyless{Store: memory.New(nil)}
		open := func(p headgate.Policy) headgate.Policy { p.OnFailure = headgate.FailOpen; return p }
		fast := limiter(t, s, open(minute("fast", 1)), open(minute("tokens", 100)))
		cheap, err := fast.With(open(minute("tokens", 100)), open(minute("cheap", 9)))
		require.NoError(t, err)
		h := firstOf(t, &Options{Settle: Reported}, fast.Part("fast", 1, 20), cheap.Part("cheap", 30, 1))
		require.Equal(t, 204, get(h).Code)
		require.Equal(t, []int64{1, 7}, used(t, fast, "fast"))
		s.lost = lost
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, 204, w.Code)
		require.Equal(t, []int64{1, 7}, used(t, fast, "fast"))
		require.Equal(t, []int64{7, 1}, used(t, cheap, "cheap"))
	}
}

// replyless is a memory store of which the answer to a Reserve is lost.
type replyless struct {
	*memory.Store
	lost bool
}

func (s *replyless) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	err := s.Store.Do(ctx, r, d)
	if s.lost && r.Op == backend.Reserve {
		*d = backend.Decision{}
		return backend.ErrPerhapsCounted
	}
	return err
}
