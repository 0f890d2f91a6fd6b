package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
)

// settings are how much work a run does. Tests of this package run every
// workload with fewer keys and callers and in milliseconds. That shows that a
// workload works, not how fast it is.
type settings struct {
	runs   int
	length time.Duration
	keys   int // on Redis
	many   int // in memory
	most   int // callers in a process
	fleet  int // processes; 0: as many as the workload has
}

// defaults are those of the published document. A run with less says so in its
// notes.
var defaults = settings{runs: 5, length: time.Second, keys: 100_000, many: 1_000_000, most: 512}

// bench is one run of the program, on one goroutine. It owns the servers, which
// are started when the first workload needs them, so that -only starts no
// others. They stay until the end: the keys of one workload are filled once for
// all that follow.
type bench struct {
	settings
	tb        *tb
	load      float64 // of the machine, before the run
	server    *redistest.Server
	admin     *redis.Client
	cluster   []string // addresses
	primaries []*redis.Client
	link      string          // address of the server behind a longer link
	filled    map[string]bool // subjects that have all keys in place
	capacity  float64         // of redis_rate
	late      []time.Duration
}

var ctx = context.Background()

// newBench reads the machine's load before anything runs, since the benchmark
// itself is load.
func newBench(s settings) *bench {
	redis.SetLogger(quiet{})
	return &bench{settings: s, tb: &tb{}, load: loadAverage(), filled: map[string]bool{}}
}

// quiet keeps go-redis from printing among the tables.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// addr is the one Redis server's.
func (b *bench) addr() string {
	if b.server == nil {
		b.server = redistest.Start(b.tb)
		b.admin = b.server.Client(b.tb)
	}
	return b.server.Addr()
}

// progress is for a person who waits.
func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
