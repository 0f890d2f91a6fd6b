package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/middleware/statuspage"
	"github.com/stretchr/testify/require"
)

func (s *testServer) page(t *testing.T) (status statuspage.Status) {
	t.Helper()
	resp, err := http.Get(s.httpURL() + "/page/status.json")
	code, body := read(t, resp, err)
	require.Equal(t, http.StatusOK, code, body)
	require.NoError(t, json.Unmarshal([]byte(body), &status))
	return status
}

// send sends requests of a user.
func (s *testServer) send(t *testing.T, value string, hits uint32, requests int) {
	t.Helper()
	c := s.client(t)
	for range requests {
		r := userRequest(value)
		r.HitsAddend = hits
		_, err := c.ShouldRateLimit(context.Background(), r)
		require.NoError(t, err)
	}
}

// TestPage: the limits in force, what became of requests, and hashed keys, also of hits that are
// charged always.
func TestPage(t *testing.T) {
	s := startServer(t, userLimits)
	s.send(t, "password", 1, 5)
	s.send(t, "other", 3, 1)
	p := s.page(t)
	require.Len(t, p.Limits, 1)
	require.Equal(t, "d.user", p.Limits[0].Name)
	require.Equal(t, "2 per 24h0m0s, fixed-window", p.Limits[0].Rule)
	require.Equal(t, statuspage.Counts{Passed: 2, Denied: 4}, p.Limits[0].Minutes)
	require.Len(t, p.Denied, 2)
	require.EqualValues(t, 3, p.Denied[0].Count)
	require.Empty(t, p.Denied[0].Key)
	require.Equal(t, "files", p.Origin.Source)
	require.Equal(t, s.watcher.now.Load().Origin.Version, p.Origin.Version)
	require.Equal(t, "memory", p.Stores[0].Kind)
	for _, path := range []string{"/page/", "/page/status.json", "/"} {
		resp, err := http.Get(s.httpURL() + path)
		code, body := read(t, resp, err)
		require.Equal(t, http.StatusOK, code)
		require.NotContains(t, body, "password")
		require.Contains(t, body, "d.user")
	}
}

// TestPageOfNewLimits: a limit that stays has its counts, and one that has left is not shown.
func TestPageOfNewLimits(t *testing.T) {
	s := startServer(t, userLimits)
	s.send(t, "a", 1, 3)
	replaceFile(t, s.file, strings.Replace(userLimits, "descriptors: [", "descriptors: [{key: path, rate_limit: {unit: hour, requests_per_unit: 9}}, ", 1))
	require.Eventually(t, func() bool { return len(s.page(t).Limits) == 2 }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, statuspage.Counts{Passed: 2, Denied: 1}, s.page(t).Limits[0].Minutes)
	replaceFile(t, s.file, "domain: d\ndescriptors: [{key: path, rate_limit: {unit: hour, requests_per_unit: 9}}]")
	require.Eventually(t, func() bool { return len(s.page(t).Limits) == 1 }, 10*time.Second, 10*time.Millisecond)
}

// TestPageFlags: -page-keys shows keys, and -page=false leaves the page out.
func TestPageFlags(t *testing.T) {
	s := startServer(t, userLimits, "-page-keys")
	s.send(t, "alice", 1, 3)
	require.Contains(t, s.page(t).Denied[0].Key, "alice")
	s = startServer(t, userLimits, "-page=false")
	s.send(t, "alice", 1, 3)
	for _, path := range []string{"/page/", "/page/status.json", "/"} {
		resp, err := http.Get(s.httpURL() + path)
		code, _ := read(t, resp, err)
		require.Equal(t, http.StatusNotFound, code)
	}
}

// TestPageByOwnName: at a loopback address a page whose name resolves to this machine is refused.
func TestPageByOwnName(t *testing.T) {
	s := startServer(t, userLimits)
	for host, want := range map[string]int{"": 200, "localhost": 200, "localhost:8080": 200, "[::1]:8080": 200, "attacker.example": 403, "localhost.attacker.example:8080": 403} {
		r, err := http.NewRequest(http.MethodGet, s.httpURL()+"/page/", nil)
		require.NoError(t, err)
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		code, _ := read(t, resp, err)
		require.Equal(t, want, code, host)
	}
}

// TestPageOfNoStore: a request that no store decided is undecided, whether it is answered with an
// error or by a failure mode.
func TestPageOfNoStore(t *testing.T) {
	for _, mode := range []string{"", "open", "closed"} {
		s := startServer(t, userLimits, "-redis", "redis://127.0.0.1:1", "-on-failure", mode)
		_, err := s.client(t).ShouldRateLimit(context.Background(), userRequest("a"))
		require.Equal(t, mode == "", err != nil)
		p := s.page(t)
		require.Equal(t, statuspage.Counts{Undecided: 1}, p.Limits[0].Minutes, mode)
		require.Empty(t, p.Denied)
	}
}

// TestPageShowsAFlood within two seconds, in the right order, with each store.
func TestPageShowsAFlood(t *testing.T) {
	for name, args := range map[string][]string{"memory": nil, "redis": {"-redis", "redis://" + redistest.Start(t).Addr()}} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, userLimits, append(args, "-page-keys")...)
			for i := range 300 {
				s.send(t, fmt.Sprint("user-", i), 1, 3)
			}
			begin := time.Now()
			c := s.client(t)
			for i := 0; time.Since(begin) < time.Second; i++ {
				_, err := c.ShouldRateLimit(context.Background(), userRequest([]string{"first", "second", "first", "third", "second", "first"}[i%6]))
				require.NoError(t, err)
			}
			p := s.page(t)
			require.Less(t, time.Since(begin), 2*time.Second)
			for i, want := range []string{"first", "second", "third"} {
				require.Contains(t, p.Denied[i].Key, want)
			}
		})
	}
}
