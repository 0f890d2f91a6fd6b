//go:build go1.25

package httplimit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// silent is a memory store that settles nothing while it is down.
type silent struct {
	*memory.Store
	down    atomic.Bool
	settles atomic.Int64
}

func (s *silent) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if r.Op == backend.Settle {
		s.settles.Add(1)
		if s.down.Load() {
			return backend.ErrUnavailable
		}
	}
	return s.Store.Do(ctx, r, d)
}

// TestSettledAfterOutage: a settlement that no store has decided is repeated for as long as
// the lease is, and not longer. The limiter's Logger gets the one that was lost.
func TestSettledAfterOutage(t *testing.T) {
	for outage, want := range map[time.Duration]int64{6 * time.Second: 2, 55 * time.Second: 2, 65 * time.Second: 5} {
		t.Run(fmt.Sprint(outage), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &silent{Store: memory.New(nil)}
				var log bytes.Buffer
				user, err := headgate.New(s, []headgate.Policy{policy("user", algo.FixedWindow(algo.PerDay(100)))}, &headgate.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				require.NoError(t, err)
				org := limiter(t, s, policy("org", algo.FixedWindow(algo.PerDay(100))))
				parts := func(*http.Request) ([]headgate.Part, error) {
					return []headgate.Part{user.Part("u", 5), org.Part("o", 5)}, nil
				}
				m, err := NewAll(parts, &Options{Settle: func(*Outcome) []int64 { return []int64{2, 2} }})
				require.NoError(t, err)
				h := m(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
				s.down.Store(true)
				require.Equal(t, 204, send(h, httptest.NewRequest(http.MethodGet, "/", nil)).Code)
				time.Sleep(outage)
				s.down.Store(false)
				synctest.Wait()
				time.Sleep(5 * time.Second)
				for l, key := range map[*headgate.Limiter]string{user: "u", org: "o"} {
					d, err := l.Peek(context.Background(), headgate.Call{Key: key})
					require.NoError(t, err)
					require.Equal(t, want, d.Used, key)
				}
				require.Less(t, s.settles.Load(), int64(150))
				require.Equal(t, want == 5, strings.Contains(log.String(), "a settlement failed"), log.String())
			})
		})
	}
}

// TestRepeatedSettlementsAreBounded: at most 4,096 settlements of a middleware are repeated
// at a time.
func TestRepeatedSettlementsAreBounded(t *testing.T) {
	const all = 4096 + 3
	synctest.Test(t, func(t *testing.T) {
		s := &silent{Store: memory.New(nil)}
		l := limiter(t, s, policy("p", algo.FixedWindow(algo.PerDay(2*all))))
		parts := func(*http.Request) ([]headgate.Part, error) { return []headgate.Part{l.Part("k", 1)}, nil }
		m, err := NewAll(parts, &Options{Settle: func(*Outcome) []int64 { return []int64{0} }})
		require.NoError(t, err)
		h := m(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		s.down.Store(true)
		var callers sync.WaitGroup
		for range all {
			callers.Add(1)
			go func() { defer callers.Done(); at(h, "k", "/") }()
		}
		callers.Wait()
		time.Sleep(time.Second)
		s.down.Store(false)
		time.Sleep(5 * time.Second)
		d, err := l.Peek(context.Background(), headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.EqualValues(t, 3, d.Used)
	})
}
