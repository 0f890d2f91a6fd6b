package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// A file whose limits all have one number is replaced under load: no request is decided
// by half of a file, and a broken one changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	text := func(n int) string {
		return fmt.Sprintf("domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: %d}}\n- {key: b, rate_limit: {unit: day, requests_per_unit: %d}}\n", n, n)
	}
	const first = 1_000_000
	s := startServer(t, text(first), "-config-interval", "1ms")
	c, end := s.client(t), make(chan struct{})
	var seen sync.Map
	var halves, asked atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case <-end:
					return
				default:
				}
				resp, err := c.ShouldRateLimit(context.Background(), &rlspb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
					{Entries: []*common.RateLimitDescriptor_Entry{{Key: "a"}}}, {Entries: []*common.RateLimitDescriptor_Entry{{Key: "b"}}}}})
				if err != nil || resp.Statuses[0].CurrentLimit.GetRequestsPerUnit() != resp.Statuses[1].CurrentLimit.GetRequestsPerUnit() {
					halves.Add(1)
					continue
				}
				asked.Add(1)
				seen.Store(resp.Statuses[0].CurrentLimit.RequestsPerUnit, true)
			}
		}()
	}
	swaps := redistest.Steps(40, 1000)
	for i := range swaps {
		replaceFile(t, s.file, text(first+1+i))
		time.Sleep(5 * time.Millisecond)
	}
	replaceFile(t, s.file, "domain: [")
	require.Eventually(t, func() bool {
		return strings.Contains(scrape(t, s), `headgated_config_loads_total{files="limits",result="error"} 1`)
	}, 20*time.Second, 5*time.Millisecond)
	close(end)
	wg.Wait()
	require.Zero(t, halves.Load())
	limits := 0
	seen.Range(func(any, any) bool { limits++; return true })
	t.Logf("%d requests met %d of %d files", asked.Load(), limits, swaps)
	require.Greater(t, limits, 1)
	_, err := c.ShouldRateLimit(context.Background(), userRequest("x"))
	require.NoError(t, err, "the file before the broken one is in use")
}

// A limit that is local names the flag that it needs, with the file's line or without.
func TestLocalNeedsInstances(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	for text, args := range map[string][]string{
		strings.Replace(userLimits, "2}", "2, on_failure: local}", 1): nil,
		userLimits: {"-on-failure", "local"},
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		s, _, err := settingsOf(append([]string{"headgated", "-config", file}, args...), nil, io.Discard)
		require.NoError(t, err)
		_, err = newServer(s, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, "-instances")
		t.Log(err)
	}
}
