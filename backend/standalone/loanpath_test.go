package standalone_test

import (
	"context"
	"encoding"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/lua"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// replaced sends another script in place of the library's.
type replaced struct {
	*redis.Client
	sha string
}

func (r replaced) Process(ctx context.Context, cmd redis.Cmder) error {
	if cmd.Name() != "evalsha" {
		return r.Client.Process(ctx, cmd)
	}
	args := slices.Clone(cmd.Args())
	args[1] = named{args[1].(encoding.BinaryMarshaler), r.sha}
	text, err := r.Do(ctx, args...).Text()
	cmd.(interface{ SetVal(string) }).SetVal(text)
	cmd.SetErr(err)
	return err
}

// named is a script's name under which another one is sent.
type named struct {
	encoding.BinaryMarshaler
	sha string
}

func (n named) MarshalBinary() ([]byte, error) {
	_, err := n.BinaryMarshaler.MarshalBinary() // which packs the request
	return []byte(n.sha), err
}

// TestTakeBesideALoan: a take beside units that are lent is decided by the path for one policy,
// also while a loan waits to be settled that its holder uses no more. Only the take that finds
// a loan at its end leaves that path. In this script, that is an error.
func TestTakeBesideALoan(t *testing.T) {
	const leaves, term = "decided, k, general, pos = decided + i - k, i, true, section", 100 * time.Millisecond
	script := strings.Replace(lua.Script, leaves, "do return redis.error_reply('ERR the general path') end", 1)
	require.NotEqual(t, lua.Script, script)
	at := time.Now().Truncate(time.Hour)
	client := redistest.Shared(t).Client(t)
	sha, err := client.ScriptLoad(context.Background(), script).Result()
	require.NoError(t, err)
	s := standalone.New(clock.Client{Processor: replaced{client, sha}, Now: func() time.Time { return at }}, nil)
	do := func(op backend.Op, key string, a algo.Algorithm, l *backend.Loan) error {
		r := backend.Request{Op: op, Loan: l, Group: backend.Group{Key: key, Cost: 1,
			Policies: []backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailClosed}}}}
		return s.Do(context.Background(), &r, new(backend.Decision))
	}
	for name, a := range map[string]algo.Algorithm{
		"FixedWindow":    algo.FixedWindow(algo.PerHour(1 << 30)),
		"SlidingWindow":  algo.SlidingWindow(algo.PerHour(1 << 30)),
		"BucketedWindow": algo.BucketedWindow(algo.PerHour(1<<30), 10),
		"TokenBucket":    algo.TokenBucket(algo.PerHour(1<<30), 1<<30),
	} {
		t.Run(name, func(t *testing.T) {
			key := "loan path " + name
			for i := range uint64(redistest.Steps(50, 1000)) {
				l := &backend.Loan{Term: term, Seq: 1, Want: 10}
				binary.LittleEndian.PutUint64(l.ID[:], i+1)
				require.NoError(t, do(backend.Borrow, key, a, l))
				require.Positive(t, l.Lent.Units)
			}
			for range 2*backend.MaxTerms - 1 {
				at = at.Add(term / 2)
				require.NoError(t, do(backend.Take, key, a, nil), "a take beside loans")
			}
			at = at.Add(term)
			require.ErrorContains(t, do(backend.Take, key, a, nil), "the general path", "they have ended")
		})
	}
}
