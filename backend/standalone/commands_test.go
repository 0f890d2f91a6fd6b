package standalone_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestCommandsOfATake: a take calls the commands that it needs. A new key costs one more.
func TestCommandsOfATake(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	store := standalone.New(client, &standalone.Options{Budget: 10 * time.Second})
	ask := func(key string, algorithms ...algo.Algorithm) {
		r := backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Cost: 1}}
		for _, a := range algorithms {
			r.Policies = append(r.Policies, backend.Policy{Name: a.Kind().String(), Algorithm: a, OnFailure: backend.FailOpen})
		}
		_, err := layer.Ask(ctx, store, r)
		require.NoError(t, err)
	}
	called := func(of func()) map[string]int64 {
		server.ResetStats(t)
		of()
		calls := map[string]int64{}
		for name, s := range server.CommandStats(t) {
			if name != "hello" && name != "info" && name != "config|resetstat" {
				calls[name] = s.Calls
			}
		}
		return calls
	}
	day := algo.PerDay(5)
	token, window, long := algo.TokenBucket(day, 5), algo.FixedWindow(day), algo.SlidingLog(day)
	ask("before", token) // loads the script
	for _, c := range []struct {
		name  string
		calls []string
		of    func()
	}{
		{"a new key", []string{"evalsha", "time", "hget", "hset", "pexpire"}, func() { ask("k", token) }},
		{"a known key", []string{"evalsha", "time", "hget", "hset"}, func() { ask("k", token) }},
		{"a new key of two policies", []string{"evalsha", "time", "hmget", "hset", "pexpire"}, func() { ask("j", token, window) }},
		{"a known key of two policies", []string{"evalsha", "time", "hmget", "hset"}, func() { ask("j", token, window) }},
		{"a new log", []string{"evalsha", "time", "zrange", "zadd", "pexpire"}, func() { ask("k", long) }},
	} {
		want := map[string]int64{}
		for _, name := range c.calls {
			want[name]++
		}
		require.Equal(t, want, called(c.of), c.name)
	}

	// A known count that is kept for longer moves the expiry by one command more. A new count
	// of a known key finds one there.
	hash := names.DefaultPrefix.Hash("k")
	for _, c := range []struct {
		of       algo.Algorithm
		pexpires int64
		least    time.Duration
	}{
		{algo.TokenBucket(algo.Per(5, 72*time.Hour), 5), 1, 72 * time.Hour},
		{algo.FixedWindow(algo.PerMinute(5)), 2, 72 * time.Hour},
		{algo.SlidingWindow(algo.Per(5, 144*time.Hour)), 2, 144 * time.Hour},
	} {
		require.Equal(t, c.pexpires, called(func() { ask("k", c.of) })["pexpire"], c.of)
		require.Greater(t, client.PTTL(ctx, hash).Val(), c.least)
	}
}
