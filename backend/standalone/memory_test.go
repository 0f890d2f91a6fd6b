package standalone_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

var memoryUsage = flag.Bool("memory", false, "measure what keys take in Redis, and write docs/memory.md")

const memoryKey = "user:12345678"

// TestMemory writes docs/memory.md: bytes by MEMORY USAGE and by used_memory, with
// calls that come evenly over nine tenths of a day, by a clock of the test's own.
func TestMemory(t *testing.T) {
	if !*memoryUsage {
		t.Skip("run by make memory")
	}
	s, b := newTimed(t), &strings.Builder{}
	version := s.client.InfoMap(context.Background(), "server").Item("Server", "redis_version")
	fmt.Fprintf(b, memoryHead, version)
	s.fixedSizes(b)
	s.logSizes(b)
	s.leaseSizes(b)
	s.users(b)
	require.NoError(t, os.WriteFile("../../docs/memory.md", []byte(b.String()), 0o644))
}

const memoryHead = `# Memory

What keys take in Redis %s with its jemalloc, measured by ` + "`make memory`" + `. A key is ` + "`" + memoryKey + "`" + ` with one policy named ` + "`p`" + `; each call costs 1. Calls come evenly over nine tenths of a day, the period. Bytes are MEMORY USAGE of all that is stored.

## Algorithms of fixed size

The bytes depend neither on the limit nor on the calls. The last row is the string that redis_rate v10 keeps of a key, at any limit. The test writes it itself.

| algorithm | bytes per key |
| --- | --- |
`

func (s *timed) fixedSizes(b *strings.Builder) {
	l := algo.PerDay(1000)
	for _, a := range []algo.Algorithm{
		algo.FixedWindow(l), algo.SlidingWindow(l), algo.TokenBucket(l, 1000), algo.Calendar(1000, algo.Month(1), time.UTC),
		algo.BucketedWindow(l, 10), algo.BucketedWindow(l, 60), algo.BucketedWindow(l, 240),
	} {
		s.refill(a, memoryKey, 100)
		fmt.Fprintf(b, "| %v | %d |\n", &a, s.bytes())
	}
	s.client.FlushAll(s.Context())
	s.redisRate(memoryKey)
	fmt.Fprintf(b, "| redis_rate | %d |\n", s.bytes())
}

// redisRate writes what redis_rate keeps of a key: an instant, as text.
func (s *timed) redisRate(key string) {
	require.NoError(s, s.client.Set(s.Context(), "rate:"+key, "281480145.12345678", time.Hour).Err())
}

func (s *timed) logSizes(b *strings.Builder) {
	fmt.Fprint(b, "\n## Logs\n\nBytes per key, and per call in brackets, of logs filled to a part of their limit. SlidingLog is the sorted set that many limiters use.\n\n| limit | algorithm | 1 % | 10 % | 50 % | 100 % |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, limit := range []int64{10, 100, 1000, 10_000, 100_000} {
		for _, a := range []algo.Algorithm{algo.SlidingLog(algo.PerDay(limit)), algo.CompactLog(algo.PerDay(limit))} {
			fmt.Fprintf(b, "| %d | %v |", limit, a.Kind())
			for _, percent := range []int64{1, 10, 50, 100} {
				n := max(1, limit*percent/100)
				s.refill(a, memoryKey, n)
				all := s.bytes()
				fmt.Fprintf(b, " %d (%.1f) |", all, float64(all)/float64(n))
			}
			fmt.Fprintln(b)
		}
	}
}

// leaseSizes has open reservations, each with its lease.
func (s *timed) leaseSizes(b *strings.Builder) {
	fmt.Fprint(b, "\n## Open reservations\n\nBytes per key, and per reservation in brackets, of a key with open reservations. A settled one is smaller. Each leaves by itself after twice the length of its lease, a settled one after one length, and 10 s more.\n\n| algorithm | 1 | 10 | 100 | 1,000 |\n| --- | --- | --- | --- | --- |\n")
	l := algo.PerDay(1000)
	for _, a := range []algo.Algorithm{algo.InFlight(1000), algo.TokenBucket(l, 1000), algo.SlidingLog(l), algo.CompactLog(l)} {
		fmt.Fprintf(b, "| %v |", a.Kind())
		list := []backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailClosed}}
		for _, n := range []int64{1, 10, 100, 1000} {
			s.client.FlushAll(s.Context())
			for range n {
				s.now += 1000
				_, err := layer.Ask(s.Context(), s.store, reserveOne(memoryKey, list))
				require.NoError(s, err)
			}
			all := s.bytes()
			fmt.Fprintf(b, " %d (%.1f) |", all, float64(all)/float64(n))
		}
		fmt.Fprintln(b)
	}
}

// users measures used_memory, which has all that Redis needs for a key. Of what has a
// fixed size one call per user is enough.
func (s *timed) users(b *strings.Builder) {
	fmt.Fprint(b, "\n## A million users\n\nThe growth of used_memory per user at the limit, times a million. Logs are measured with 10,000 users at a limit of 5 per day, and 100 at 1,000 per day. The others are measured with 10,000 users.\n\n| algorithm | limit 5 | limit 1,000 |\n| --- | --- | --- |\n")
	for _, make := range []func(algo.Limit) algo.Algorithm{algo.SlidingLog, algo.CompactLog} {
		few, many := make(algo.PerDay(5)), make(algo.PerDay(1000))
		fmt.Fprintf(b, "| %v | %s | %s |\n", few.Kind(), s.million(few, 10_000, 5), s.million(many, 100, 1000))
	}
	l := algo.PerDay(1000)
	for _, a := range []algo.Algorithm{
		algo.FixedWindow(l), algo.SlidingWindow(l), algo.BucketedWindow(l, 10), algo.TokenBucket(l, 1000), algo.Calendar(1000, algo.Month(1), time.UTC),
	} {
		of := s.million(a, 10_000, 1)
		fmt.Fprintf(b, "| %v | %s | %s |\n", a.Kind(), of, of)
	}
	of := s.growth(10_000, s.redisRate)
	fmt.Fprintf(b, "| redis_rate | %s | %s |\n", of, of)
}

func (s *timed) million(a algo.Algorithm, users int, calls int64) string {
	start := s.now
	return s.growth(users, func(user string) {
		s.now = start
		s.fill(user, a, calls)
	})
}

// growth returns what used_memory grows by for a million users.
func (s *timed) growth(users int, each func(user string)) string {
	s.client.FlushAll(s.Context())
	s.take("other", algo.SlidingLog(algo.PerDay(5)), 1) // the script is loaded
	before := s.used()
	for i := range users {
		each("user:" + strconv.Itoa(10_000_000+i))
	}
	return fmt.Sprintf("%.2f GB", float64(s.used()-before)/float64(users)*1e6/1e9)
}

func (s *timed) used() int64 {
	n, err := strconv.ParseInt(s.client.InfoMap(s.Context(), "memory").Item("Memory", "used_memory"), 10, 64)
	require.NoError(s, err)
	return n
}

// refill begins with an empty server.
func (s *timed) refill(a algo.Algorithm, key string, n int64) {
	s.client.FlushAll(s.Context())
	s.fill(key, a, n)
}

func (s *timed) bytes() (n int64) {
	for _, k := range s.client.Keys(s.Context(), "*").Val() {
		n += s.client.MemoryUsage(s.Context(), k, 0).Val()
	}
	return n
}
