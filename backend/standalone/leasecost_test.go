package standalone_test

import (
	"context"
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/lua"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const (
	leaseTurns = 60
	leaseSlice = 250 // keys of one turn
)

// leaseRows are the policies whose reservations are measured against takes.
func leaseRows() []costRow {
	p := func(a algo.Algorithm) []backend.Policy {
		return []backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailOpen}}
	}
	return []costRow{
		{"TokenBucket", 0, p(algo.TokenBucket(algo.PerHour(1<<20), 1<<20))},
		{"SlidingLog", 0, p(algo.SlidingLog(algo.PerHour(1_000_000)))},
	}
}

// recorder is a hook that keeps a client's EVALSHA and sends none. To send them in one
// pipeline keeps the server busy. That measures the scripts, and not how soon the
// machine runs a server that has slept.
type recorder struct{ sent [][]any }

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

var errRecorded = errors.New("recorded")

func (r *recorder) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return errRecorded
		}
		var args []any
		for _, a := range cmd.Args() {
			switch v := a.(type) {
			case encoding.BinaryMarshaler:
				b, _ := v.MarshalBinary()
				a = string(b)
			case *int:
				a = *v
			}
			args = append(args, a)
		}
		r.sent = append(r.sent, args)
		return errRecorded
	}
}

// pipelined measures calls of a store whose client has a recorder.
type pipelined struct {
	*testing.T
	server   *redistest.Server
	client   *redis.Client
	recorder *recorder
	recorded *redis.Client
}

func newPipelined(t *testing.T) *pipelined {
	server := redistest.Start(t)
	p := &pipelined{t, server, server.Client(t), &recorder{}, server.Client(t)}
	p.recorded.AddHook(p.recorder)
	require.NoError(t, p.client.ScriptLoad(context.Background(), lua.Script).Err())
	return p
}

// micros calls for n keys from the given one on, and returns the server's µs per call.
func (p *pipelined) micros(from, n int, call func(key string) error) float64 {
	p.record(from, n, call)
	p.server.ResetStats(p.T)
	p.send()
	return p.server.CommandStats(p.T)["evalsha"].PerCall
}

// run is micros without its figure.
func (p *pipelined) run(from, n int, call func(key string) error) {
	p.record(from, n, call)
	p.send()
}

func (p *pipelined) record(from, n int, call func(key string) error) {
	p.recorder.sent = p.recorder.sent[:0]
	for i := range n {
		_ = call("user:" + strconv.Itoa(10_000_000+from+i))
	}
	require.Len(p, p.recorder.sent, n)
}

func (p *pipelined) send() {
	_, err := p.client.Pipelined(context.Background(), func(pipe redis.Pipeliner) error {
		for _, args := range p.recorder.sent {
			pipe.Do(context.Background(), args...)
		}
		return nil
	})
	require.NoError(p, err)
}

// TestLeaseCost measures what a Reserve and a Settle that gives back cost the server,
// against a take by the same policy. Other keys have no open lease, or many. A log whose
// entries gave back keeps that beside it: its takes and settlements are measured against
// each other too.
func TestLeaseCost(t *testing.T) {
	if !*serverCost {
		t.Skip("run by make server-cost")
	}
	p := newPipelined(t)
	fmt.Printf("%-12s %7s %8s %8s %8s %12s %12s %12s   (the server's µs a call; ratios to a take are medians of %d turns)\n",
		"policy", "leases", "take µs", "Reserve", "Commit", "late Commit", "take after", "late again", leaseTurns)
	for _, row := range leaseRows() {
		for _, open := range []int{0, 100_000} {
			require.NoError(t, p.client.FlushAll(context.Background()).Err())
			c := leaseCosts{row.take(p.recorded), row.reserve(p.recorded), row.settle(p.recorded)}
			for from := 0; from < open; from += 1000 {
				p.run(1_000_000+from, 1000, c.reserve)
			}
			m := c.measure(p)
			fmt.Printf("%-12s %7d %8.2f %8.2f %8.2f %12.2f %12.2f %12.2f\n", row.name, open, m[0], m[1], m[2], m[3], m[4], m[5]/m[4])
			if m[1] > 2.0 || m[2] > 1.8 || m[5]/m[4] > 1.8 {
				t.Errorf("%s: a Reserve costs the server more than 2.0 times a take, or a Commit more than 1.8", row.name)
			}
		}
	}
}

// leaseCosts are the calls of one policy that are measured.
type leaseCosts struct{ take, reserve, settle func(key string) error }

// measure returns medians. The first is what a take costs. The others are multiples of
// it: a Reserve, a Commit right after it, a Commit after another take, and then another
// such take and Commit.
func (c leaseCosts) measure(p *pipelined) (medians [6]float64) {
	var all [6][]float64
	for turn := range leaseTurns {
		call := func(f func(string) error) float64 { return p.micros(turn*leaseSlice, leaseSlice, f) }
		for _, f := range []func(string) error{c.take, c.reserve, c.settle} { // every key exists
			call(f)
		}
		take := call(c.take)
		of := [6]float64{take, call(c.reserve) / take, call(c.settle) / take}
		call(c.reserve)
		call(c.take)
		of[3] = call(c.settle) / take
		call(c.reserve)
		of[4], of[5] = call(c.take)/take, call(c.settle)/take
		for i, v := range of {
			all[i] = append(all[i], v)
		}
	}
	for i := range all {
		medians[i] = median(all[i])
	}
	return medians
}

func (r costRow) lease(client *redis.Client, op backend.Op, cost int64, id func(key string) backend.LeaseID) func(string) error {
	s := standalone.New(client, &standalone.Options{Budget: 10 * time.Second, DisableBatching: true})
	return func(key string) error {
		l := backend.Lease{ID: id(key), Length: time.Minute}
		if op == backend.Settle {
			l.Actual, l.Attempt = []int64{cost / 2}, l.ID
		}
		g := backend.Group{Key: key, Policies: r.policies, Cost: cost, Lease: &l}
		_, err := layer.Ask(context.Background(), s, backend.Request{Op: op, Group: g})
		return err
	}
}

func (r costRow) reserve(client *redis.Client) func(string) error {
	return r.lease(client, backend.Reserve, 2, leaseIDs())
}

func (r costRow) settle(client *redis.Client) func(string) error {
	return r.lease(client, backend.Settle, 2, leaseIDs())
}

// leaseIDs returns a function that names the leases of each key. Two such functions
// count separately and name the leases alike.
func leaseIDs() func(key string) backend.LeaseID {
	var mu sync.Mutex
	calls := map[string]uint64{}
	return func(key string) (id backend.LeaseID) {
		mu.Lock()
		defer mu.Unlock()
		calls[key]++
		binary.LittleEndian.PutUint64(id[:], calls[key])
		return id
	}
}

// TestSettleCostOfALongLog: a Settle costs at most three takes where the log has a
// million entries, wherever the entry stands.
func TestSettleCostOfALongLog(t *testing.T) {
	if !*serverCost {
		t.Skip("run by make server-cost")
	}
	const leases, entries = 300, 1_000_000 - 3*300
	p, now := newPipelined(t), int64(1_745_000_000_000_000)
	a := algo.SlidingLog(algo.PerDay(1_000_000))
	list := []backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailOpen}}
	s := standalone.New(clock.Client{Processor: p.recorded, Now: func() time.Time { return time.UnixMicro(now) }}, &standalone.Options{DisableBatching: true})
	ask := func(op backend.Op, cost int64, l *backend.Lease) func(string) error {
		return func(string) error {
			now += 1000
			_, err := layer.Ask(context.Background(), s, backend.Request{Op: op, Group: backend.Group{Lease: l, Key: "k", Policies: list, Cost: cost}})
			return err
		}
	}
	sum := uint64(0)
	log := names.DefaultPrefix.Log("k", &list[0])
	for id := range leases {
		var members []redis.Z
		for range entries / leases {
			sum, now = sum+1, now+1000
			m := binary.BigEndian.AppendUint64([]byte{1}, math.Float64bits(float64(sum)))
			members = append(members, redis.Z{Score: float64(now), Member: binary.BigEndian.AppendUint32(m, 1)})
		}
		require.NoError(t, p.client.ZAdd(t.Context(), log, members...).Err())
		require.NoError(t, p.client.Expire(t.Context(), log, 48*time.Hour).Err())
		p.run(0, 1, ask(backend.Reserve, 2, &backend.Lease{ID: backend.LeaseID{1, byte(id), byte(id >> 8)}, Length: 24 * time.Hour}))
		sum += 2
	}
	var takes, settles []float64
	for i := range leases {
		id := i * 7 % leases
		l := &backend.Lease{ID: backend.LeaseID{1, byte(id), byte(id >> 8)}, Actual: []int64{int64(id % 2)}, Attempt: backend.LeaseID{1}, Length: time.Hour}
		takes = append(takes, p.micros(0, 1, ask(backend.Take, 1, nil)))
		settles = append(settles, p.micros(0, 1, ask(backend.Settle, 0, l)))
	}
	whole := standalone.New(clock.Client{Processor: p.client, Now: func() time.Time { return time.UnixMicro(now) }}, nil)
	d, err := layer.Ask(t.Context(), whole, backend.Request{Op: backend.Peek, Group: backend.Group{Key: "k", Policies: list}})
	require.NoError(t, err)
	require.EqualValues(t, entries/leases*leases+leases+leases/2, d.Used, "entries, takes, and of half of the leases a unit")
	t.Logf("a take %.1f µs, a Settle %.1f µs (medians of %d)", median(takes), median(settles), leases)
	require.LessOrEqual(t, median(settles), 3*median(takes))
}
