package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// settings are how much is done; tests do less.
type settings struct {
	runs    int
	length  time.Duration
	keys    int // on Redis
	many    int // in memory
	most    int // in memory, once
	crowd   int // callers
	crowded int // callers where connections are counted
}

var defaults = settings{
	runs: 5, length: time.Second,
	keys: 100_000, many: 1_000_000, most: 10_000_000,
	crowd: 512, crowded: 1000,
}

// bench is one run. Servers are started when the first workload needs them.
type bench struct {
	settings
	stage    *stage
	load     float64 // of the machine, before the run
	server   *redistest.Server
	admin    *redis.Client
	cluster  []string        // addresses
	wire     string          // address of the server behind a longer wire
	filled   map[string]bool // who has all keys in place
	capacity map[string]float64
	late     []time.Duration
	notes    []string
}

var ctx = context.Background()

func newBench(s settings) *bench {
	redis.SetLogger(quiet{})
	return &bench{settings: s, stage: &stage{}, load: loadAverage(), filled: map[string]bool{}, capacity: map[string]float64{}}
}

// quiet keeps go-redis from printing among the tables.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// addr is the one Redis server's.
func (b *bench) addr() string {
	if b.server == nil {
		b.server = redistest.Start(b.stage)
		b.admin = b.server.Client(b.stage)
	}
	return b.server.Addr()
}

// info is one number of the server's INFO.
func (b *bench) info(section, field string) float64 {
	text, err := b.admin.Info(ctx, section).Result()
	if err != nil {
		b.stage.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			x, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.stage.Fatal(err)
			}
			return x
		}
	}
	b.stage.Fatalf("INFO %s has no %s", section, field)
	return 0
}

// serverCPU is what the whole process has used, in seconds: most of it goes
// into reading and writing sockets, which the time of the commands leaves out.
func (b *bench) serverCPU() float64 {
	return b.info("cpu", "used_cpu_user") + b.info("cpu", "used_cpu_sys")
}

// scripts is how many of them clients have sent.
func (b *bench) scripts() float64 {
	stats := b.server.CommandStats(b.stage)
	return float64(stats["evalsha"].Calls + stats["eval"].Calls)
}

// progress is for a person who waits.
func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// users are the keys of the workloads on Redis; the servers keep them from one
// workload to the next.
const users = "user:"

func hot(*bench) load.Keys       { return load.Hot("user:0") }
func zipf(b *bench) load.Keys    { return load.Zipf(users, b.keys, 1.1) }
func uniform(b *bench) load.Keys { return load.Uniform(users, b.keys) }
