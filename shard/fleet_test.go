package shard_test

import (
	"cmp"
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/oracle"
	"github.com/headgate-go/headgate/shard"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// cell is one experiment: a fleet of processes on one key.
type cell struct {
	Kind, K int
	Limit   int64
	Load    int // % of the limit that is asked for
	Procs   int
	Alone   bool // no flights: a round trip for every call
	Periods int  // 0: one window without end, as fast as they can; else so many of a second, evenly
	Callers int  // at once in each process; 0: eight
	Keys    int  // plain keys that the calls are for in turn, in place of the one
	Key     string
}

// length is a paced cell's period.
const length = time.Second

// callers is how many call at once in each process where nothing else is said.
const callers = 8

func (c cell) algorithm() algo.Algorithm {
	if c.Periods > 0 {
		return kinds(algo.Per(c.Limit, length))[c.Kind]
	}
	return kinds(algo.Per(c.Limit, algo.MaxPeriod/64))[c.Kind] // a K-th of a rate needs K times the period
}

func (c cell) calls() int { return int(c.Limit) * c.Load / 100 * max(c.Periods, 1) }

// tally is what one process counted in one cell.
type tally struct {
	At     []int64       // when its calls began that passed
	Denied []int64       // when it was denied
	Lag    time.Duration // of the longest call
	Failed int           // decided by no store
	Stats  shard.Stats
}

// outcome is what a cell showed.
type outcome struct {
	cell
	passed, denied, failed int
	wrong                  int // denied before the limit had passed
	last                   int64
	span                   int64 // µs between the first and the last pass
	stats                  shard.Stats
	broken                 error
	evalsha                []redistest.Stat // of each node
	took                   time.Duration
}

func (o *outcome) decisions() int { return o.passed + o.denied + o.failed }

func (o *outcome) commands() (n float64) {
	for _, s := range o.evalsha {
		n += float64(s.Calls)
	}
	return n / float64(o.decisions())
}

func (o *outcome) usec() (sum, busiest float64) {
	for _, s := range o.evalsha {
		sum += float64(s.Usec)
		busiest = max(busiest, float64(s.Usec))
	}
	return sum / float64(o.decisions()), busiest / float64(o.decisions())
}

// fleet runs the cells, one after the other, in processes of the named test,
// which calls member where it is a child.
func fleet(t *testing.T, c *redistest.Cluster, procs int, cells []cell) []outcome {
	t.Helper()
	for i := range cells {
		cells[i].Procs = procs
		cells[i].Callers = cmp.Or(cells[i].Callers, callers)
		cells[i].Key = fmt.Sprintf("tenant:%d:%d", procs, i)
	}
	admin := c.Client(t)
	require.NoError(t, admin.ForEachMaster(context.Background(), func(ctx context.Context, n *redis.Client) error { return n.FlushAll(ctx).Err() }))
	plan, err := json.Marshal(cells)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cells"), plan, 0o600))
	out := make([]outcome, len(cells))
	done := make(chan struct{})
	go func() {
		defer close(done)
		conduct(t, c, admin, procs, out)
	}()
	redistest.Processes(t, procs, t.Name(), "ADDRS="+strings.Join(c.Addrs(), ","), "DIR="+dir)
	<-done
	for i := range cells {
		out[i].cell = cells[i]
		collect(t, dir, i, &out[i])
	}
	return out
}

// conduct starts each cell when all are there, and reads what it cost.
func conduct(t *testing.T, c *redistest.Cluster, admin *redis.ClusterClient, procs int, out []outcome) {
	ctx := context.Background()
	await := func(key string) bool {
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end) && !t.Failed(); time.Sleep(time.Millisecond) {
			if n, _ := admin.Get(ctx, key).Int(); n == procs {
				return true
			}
		}
		return false
	}
	for i := range out {
		if !await(fmt.Sprint("ready", i)) {
			return
		}
		c.ResetStats(t)
		begin := time.Now()
		admin.Set(ctx, fmt.Sprint("go", i), 1, time.Hour)
		if !await(fmt.Sprint("done", i)) {
			return
		}
		out[i].took = time.Since(begin)
		for _, n := range c.Nodes() {
			out[i].evalsha = append(out[i].evalsha, n.CommandStats(t)["evalsha"])
		}
	}
}

func collect(t *testing.T, dir string, i int, o *outcome) {
	judge, last, denied := oracle.New(o.algorithm()), int64(0), []int64(nil)
	first, lag := int64(math.MaxInt64), time.Duration(0)
	for p := range o.Procs {
		f, err := os.Open(filepath.Join(dir, fmt.Sprintf("%d-%d", i, p)))
		require.NoError(t, err)
		var h tally
		require.NoError(t, gob.NewDecoder(f).Decode(&h))
		_ = f.Close()
		for _, at := range h.At {
			judge.Add(at, 1)
			first, last = min(first, at), max(last, at)
		}
		lag, denied = max(lag, h.Lag), append(denied, h.Denied...)
		o.passed += len(h.At)
		o.failed += h.Failed
		o.stats.Sums += h.Stats.Sums
		o.stats.WrongDenials += h.Stats.WrongDenials
	}
	judge.Late(lag)
	o.broken, o.denied, o.last, o.span = judge.Check(), len(denied), last, last-first
	if o.Periods > 0 {
		o.wrong = int(o.stats.WrongDenials)
		return
	}
	for _, at := range denied {
		if at <= last || o.passed < int(o.Limit) {
			o.wrong++
		}
	}
	if o.passed > int(o.Limit) && o.broken == nil {
		o.broken = fmt.Errorf("%d passed", o.passed)
	}
}

// member is what a process of the fleet does.
func member(t *testing.T, me int) {
	ctx, addrs, dir := context.Background(), strings.Split(os.Getenv("ADDRS"), ","), os.Getenv("DIR")
	plan, err := os.ReadFile(filepath.Join(dir, "cells"))
	require.NoError(t, err)
	var cells []cell
	require.NoError(t, json.Unmarshal(plan, &cells))
	admin := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer admin.Close()
	stores := map[bool]*cluster.Store{}
	for _, alone := range []bool{false, true} {
		stores[alone] = open(addrs, &cluster.Options{Budget: longBudget, DisableBatching: alone})
		defer stores[alone].Close()
		warm(t, stores[alone])
	}
	redistest.Ready()
	for i, c := range cells {
		admin.Incr(ctx, fmt.Sprint("ready", i))
		for admin.Exists(ctx, fmt.Sprint("go", i)).Val() == 0 {
			time.Sleep(time.Millisecond)
		}
		h := c.run(t, wrappers(stores[c.Alone]), me)
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%d-%d", i, me)))
		require.NoError(t, err)
		require.NoError(t, gob.NewEncoder(f).Encode(h))
		require.NoError(t, f.Close())
		admin.Incr(ctx, fmt.Sprint("done", i))
	}
}

// warm makes connections and loads the scripts.
func warm(t *testing.T, s backend.Store) {
	faulttest.Go(callers, func(i int) {
		for j := range 50 {
			_ = do(t, s, peek(strconv.Itoa(i*1000+j), one(algo.FixedWindow(algo.PerDay(1)), 0), 0))
		}
	})()
}

func (c cell) run(t *testing.T, s *shard.Store, me int) tally {
	ps := one(c.algorithm(), c.K)
	require.NoError(t, s.CheckShards(ps.policies, ps.k))
	mine := make([]tally, c.Callers)
	begin, total := time.Now(), c.calls()
	faulttest.Go(c.Callers, func(w int) {
		for n := me*c.Callers + w; n < total; n += c.Procs * c.Callers {
			if c.Periods > 0 {
				time.Sleep(time.Until(begin.Add(time.Duration(float64(n) / float64(total) * float64(c.Periods) * float64(length)))))
			}
			c.call(t, s, ps, n, &mine[w])
		}
	})()
	h := tally{Stats: s.Stats()}
	for _, m := range mine {
		h.At, h.Denied, h.Failed, h.Lag = append(h.At, m.At...), append(h.Denied, m.Denied...), h.Failed+m.Failed, max(h.Lag, m.Lag)
	}
	return h
}

func (c cell) call(t *testing.T, s backend.Store, ps spreadList, n int, h *tally) {
	r := take(c.Key, ps, 1)
	if c.Keys > 0 {
		r.Key = fmt.Sprint(c.Key, ":", n%c.Keys)
	}
	began := time.Now()
	d, err := layer.Ask(context.Background(), s, r)
	h.Lag = max(h.Lag, time.Since(began))
	switch {
	case err != nil:
		t.Error(err)
	case d.Err != nil:
		h.Failed++
	case d.Allowed:
		h.At = append(h.At, began.UnixMicro())
	default:
		h.Denied = append(h.Denied, time.Now().UnixMicro())
	}
}
