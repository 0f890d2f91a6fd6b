package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Stat is what a server counted for one command.
type Stat struct {
	Calls    int64   // executed, also from within a script
	Usec     int64   // server time of all calls, µs; a script's includes what it called
	PerCall  float64 // µs
	Rejected int64   // refused before execution: ACL, arity, out of memory
	Failed   int64   // executed, and ended in an error
}

// CommandStats reads INFO commandstats. Names are Redis's own: "evalsha",
// "script|load". A command that was never called has no entry.
func (s *Server) CommandStats(t testing.TB) map[string]Stat {
	t.Helper()
	info, err := s.Client(t).Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	stats := map[string]Stat{}
	for line := range strings.Lines(info) {
		name, fields, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "cmdstat_"), ":")
		if ok {
			stats[name] = stat(t, fields)
		}
	}
	return stats
}

func stat(t testing.TB, fields string) Stat {
	t.Helper()
	var s Stat
	const layout = "calls=%d,usec=%d,usec_per_call=%f,rejected_calls=%d,failed_calls=%d"
	if _, err := fmt.Sscanf(fields, layout, &s.Calls, &s.Usec, &s.PerCall, &s.Rejected, &s.Failed); err != nil {
		t.Fatalf("redistest: commandstats %q: %v", fields, err)
	}
	return s
}

// ResetStats sets all of CommandStats back to zero.
func (s *Server) ResetStats(t testing.TB) {
	t.Helper()
	if err := s.Client(t).ConfigResetStat(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
}

// NoImmortals fails the test for each key under prefix that never expires: a
// limiter that leaves such keys fills the server, one client at a time.
func (s *Server) NoImmortals(t testing.TB, prefix string) {
	t.Helper()
	ctx, c := context.Background(), s.Client(t)
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		keys, next, err := c.Scan(ctx, cursor, literal(prefix)+"*", 1000).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range immortal(t, c, keys) {
			t.Errorf("key %q has no TTL", key)
		}
		cursor = next
	}
}

// immortal returns those of the keys that never expire.
func immortal(t testing.TB, c *redis.Client, keys []string) (these []string) {
	t.Helper()
	ctx, pipe := context.Background(), c.Pipeline()
	ttls := make([]*redis.Cmd, len(keys))
	for i, key := range keys {
		ttls[i] = pipe.Do(ctx, "PTTL", key) // plain, since PTTL's typed result turns -1 into a nanosecond
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	for i, ttl := range ttls {
		if ttl.Val() == int64(-1) {
			these = append(these, keys[i])
		}
	}
	return these
}

// literal takes from a prefix what MATCH would read as a pattern: keys with
// hash tags or brackets in them are what we test with.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace
