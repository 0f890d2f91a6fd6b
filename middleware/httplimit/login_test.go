package httplimit

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// login is a handler whose passwords are good at /good.
var login = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	runtime.Gosched() // others come in between
	if r.URL.Path != "/good" {
		w.WriteHeader(http.StatusUnauthorized)
	}
})

// failures charges failed logins alone.
func failures(o *Outcome) []int64 {
	if o.Status == http.StatusUnauthorized {
		return nil
	}
	return []int64{0}
}

// TestFailedLogins: five failed logins in 15 minutes. Good ones are not counted, also
// while 64 callers share a key, and the sixth bad one is denied.
func TestFailedLogins(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			l := limiter(t, s, policy("failed", algo.SlidingLog(algo.Per(5, 15*time.Minute))))
			limit, err := New(l, Header("K"), &Options{Settle: failures, SettleWait: time.Minute})
			require.NoError(t, err)
			h := limit(login)
			require.Equal(t, map[int]int{200: 1000}, each(1000, func(int) int { return at(h, "good", "/good") }))
			require.Equal(t, map[int]int{401: 5, 429: 195}, each(200, func(int) int { return at(h, "good", "/bad") }))
			require.Equal(t, 429, at(h, "good", "/good"))

			for range 5 {
				require.Equal(t, 200, at(h, "alone", "/good"))
				require.Equal(t, 401, at(h, "alone", "/bad"))
			}
			require.Equal(t, 429, at(h, "alone", "/bad"), "the sixth")

			mixed := each(1000, func(i int) int {
				if i%100 == 0 {
					return at(h, "mixed", "/bad")
				}
				return at(h, fmt.Sprint("user", i%64), "/good")
			})
			require.Equal(t, map[int]int{200: 990, 401: 5, 429: 5}, mixed)
		})
	}
}

// TestFailedLoginsOfAnyEnd: a login that panics, or takes the connection over, is
// settled by its outcome as any other, under 64 callers.
func TestFailedLoginsOfAnyEnd(t *testing.T) {
	l := limiter(t, memory.New(nil), policy("failed", algo.SlidingLog(algo.Per(5, 15*time.Minute))))
	limit, err := New(l, Header("K"), &Options{SettleWait: time.Minute, Settle: func(o *Outcome) []int64 {
		if o.Panicked || o.Hijacked && o.Request.URL.Path == "/bad-hijack" {
			return nil
		}
		return []int64{0}
	}})
	require.NoError(t, err)
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runtime.Gosched()
		if r.URL.Path == "/panic" {
			panic(http.ErrAbortHandler)
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		_ = conn.Close()
	}))
	server := httptest.NewServer(h)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // or a panic makes it send again
	call := func(key, path string) int {
		r, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		r.Header.Set("K", key)
		resp, err := client.Do(r)
		if err != nil { // the handler panicked
			return 0
		}
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, map[int]int{200: 1000}, each(1000, func(int) int { return call("k", "/hijack") }))
	require.Equal(t, map[int]int{0: 5, 429: 195}, each(200, func(int) int { return call("panics", "/panic") }))
	require.Equal(t, map[int]int{200: 5, 429: 195}, each(200, func(int) int { return call("hijacks", "/bad-hijack") }))
	require.Equal(t, 429, call("hijacks", "/hijack"))
}
