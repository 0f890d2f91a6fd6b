package resp_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/cmd/headgated/internal/resp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var ctx = context.Background()

// start serves on a store and returns the address.
func start(t testing.TB, s backend.Store, change func(*resp.Options)) (*resp.Server, string) {
	t.Helper()
	base, err := headgate.New(s, []headgate.Policy{
		{Name: "requests", Algorithm: algo.FixedWindow(algo.PerDay(5)), OnFailure: headgate.FailClosed},
		{Name: "tokens", Algorithm: algo.FixedWindow(algo.PerDay(100)), OnFailure: headgate.FailClosed},
	}, nil)
	require.NoError(t, err)
	opts := resp.Options{Base: base, MaxBytes: 1 << 16, Observe: func(string, error) {},
		Plan: func(name, key string) ([]headgate.Part, error) {
			switch name {
			case "free":
				return []headgate.Part{base.Part(key)}, nil
			case "paid":
				var parts []headgate.Part
				for i, name := range []string{"allowance", "credits"} {
					l, err := base.With(headgate.Policy{Name: name, Algorithm: algo.FixedWindow(algo.PerDay(int64(2 + i))), OnFailure: headgate.FailClosed})
					if err != nil {
						return nil, err
					}
					parts = append(parts, l.Part(key))
				}
				return parts, nil
			case "open":
				return nil, nil
			case "shut":
				return nil, headgate.ErrBlocked
			}
			return nil, fmt.Errorf("unknown plan %q", name)
		}}
	if change != nil {
		change(&opts)
	}
	v := resp.New(opts)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = v.Serve(l) }()
	t.Cleanup(func() {
		_ = l.Close()
		v.Shutdown(ctx)
	})
	return v, l.Addr().String()
}

func client(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func do(t testing.TB, c *redis.Client, line string) any {
	t.Helper()
	v, err := c.Do(ctx, words(line)...).Result()
	require.NoError(t, err, line)
	return v
}

func words(line string) (args []any) {
	for _, w := range strings.Fields(line) {
		args = append(args, w)
	}
	return args
}

func TestPlans(t *testing.T) {
	_, addr := start(t, memory.New(nil), nil)
	c := client(t, addr)
	require.Equal(t, "PONG", do(t, c, "PING"))
	take := do(t, c, "hg.take free k 1 30").([]any)
	require.Equal(t, []any{int64(1), "requests", int64(5), int64(4), int64(0)}, take[:5])
	require.Equal(t, "store", take[6])
	require.Equal(t, []any{int64(1), "requests", int64(5), int64(4)}, do(t, c, "HG.PEEK free k").([]any)[:4])
	held := do(t, c, "HG.RESERVE free k 5000 1 60").([]any)
	require.Equal(t, []any{int64(1), "requests", int64(5), int64(3)}, held[:4], "a tie: the first listed")
	token := held[7].(string)
	require.NotEmpty(t, token)
	denied := do(t, c, "HG.TAKE free k 1 30").([]any)
	require.Equal(t, []any{int64(0), "tokens", int64(100), int64(10)}, denied[:4])
	require.Positive(t, denied[4])
	require.Equal(t, "OK", do(t, c, "HG.COMMIT free "+token+" 1 20"))
	require.Equal(t, []any{int64(1), "requests", int64(5), int64(2)}, do(t, c, "HG.TAKE free k 1 30").([]any)[:4])
	require.ErrorContains(t, c.Do(ctx, "HG.CANCEL", "free", token).Err(), "NOTHELD")
	require.Equal(t, "OK", do(t, c, "HG.RESET free k"))
	require.Equal(t, int64(4), do(t, c, "HG.TAKE free k").([]any)[3])
}

// TestPlanWithFirst: the first alternative that has room is charged, looked at and reserved. A Reset
// resets each.
func TestPlanWithFirst(t *testing.T) {
	_, addr := start(t, memory.New(nil), nil)
	c := client(t, addr)
	answer := func(line string) []any { return do(t, c, line).([]any)[:4] }
	require.Equal(t, []any{int64(1), "allowance", int64(2), int64(0)}, answer("HG.TAKE paid k 2"))
	require.Equal(t, []any{int64(1), "credits", int64(3), int64(3)}, answer("HG.PEEK paid k"))
	reserved := do(t, c, "HG.RESERVE paid k 5000 2").([]any)
	require.Equal(t, []any{int64(1), "credits", int64(3), int64(1)}, reserved[:4])
	require.Equal(t, []any{int64(0), "credits", int64(3), int64(1)}, answer("HG.PEEK paid k 2"))
	require.Equal(t, "OK", do(t, c, "HG.COMMIT paid "+reserved[7].(string)+" 1"))
	require.Equal(t, []any{int64(1), "credits", int64(3), int64(0)}, answer("HG.TAKE paid k 2"))
	require.Equal(t, []any{int64(0), "allowance", int64(2), int64(0)}, answer("HG.TAKE paid k"))
	require.ErrorContains(t, c.Do(ctx, "HG.TAKE", "paid", "k", "1", "1").Err(), "takes one")
	require.Equal(t, "OK", do(t, c, "HG.RESET paid k"))
	for _, policy := range []string{"allowance", "credits"} {
		require.Equal(t, policy, answer("HG.TAKE paid k 2")[1])
	}
}

// A plan without limits passes all calls, and one that is blocked passes none.
func TestPlansWithoutLimiters(t *testing.T) {
	_, addr := start(t, memory.New(nil), nil)
	c := client(t, addr)
	for plan, want := range map[string][]any{
		"open": {int64(1), "", int64(-1), int64(-1), int64(0), int64(-1), "unlimited"},
		"shut": {int64(0), "", int64(0), int64(0), int64(-1), int64(-1), "blocked"},
	} {
		for _, line := range []string{"HG.TAKE %s k", "HG.TAKE %s k 1 30 5", "HG.TAKE %s k 7", "HG.PEEK %s k"} {
			require.Equal(t, want, do(t, c, fmt.Sprintf(line, plan)), line)
		}
		require.Equal(t, append(want, ""), do(t, c, "HG.RESERVE "+plan+" k 5000"))
		for _, command := range []string{"HG.COMMIT", "HG.CANCEL"} {
			answer, err := c.Do(ctx, command, plan, "").Result()
			require.NoError(t, err)
			require.Equal(t, "OK", answer)
		}
		require.Equal(t, "OK", do(t, c, "HG.RESET "+plan+" k"))
		require.ErrorContains(t, c.Do(ctx, "HG.TAKE", plan, "k", "x").Err(), "no integer")
		require.ErrorContains(t, c.Do(ctx, "HG.RESERVE", plan, "k", "0").Err(), "lease")
	}
	token := do(t, c, "HG.RESERVE free k 5000").([]any)[7].(string)
	require.ErrorContains(t, c.Do(ctx, "HG.COMMIT", "open", token).Err(), "NOTHELD", "the plan has lost its limits")
	require.Error(t, c.Do(ctx, "HG.COMMIT", "shut", token).Err())
	require.Error(t, c.Do(ctx, "HG.COMMIT", "free", "").Err())
}

// TestReservationOfNothing: what costs nothing is reserved without a token. What charges nothing
// settles it, and what would charge is an error, since no key is known.
func TestReservationOfNothing(t *testing.T) {
	_, addr := start(t, memory.New(nil), nil)
	c := client(t, addr)
	require.Equal(t, []any{int64(1), "requests", int64(5), int64(-1), int64(0), int64(-1), "none", ""}, do(t, c, "HG.RESERVE free k 5000 0"))
	for _, args := range [][]any{{"HG.CANCEL", "free", ""}, {"HG.COMMIT", "free", "", "0", "0"}} {
		answer, err := c.Do(ctx, args...).Result()
		require.NoError(t, err)
		require.Equal(t, "OK", answer)
	}
	require.ErrorContains(t, c.Do(ctx, "HG.COMMIT", "free", "", "0", "3").Err(), "token")
	require.ErrorContains(t, c.Do(ctx, "HG.COMMIT", "free", "").Err(), "token")
	require.Equal(t, int64(4), do(t, c, "HG.TAKE free k").([]any)[3])
}

func TestMistakes(t *testing.T) {
	_, addr := start(t, memory.New(nil), nil)
	c := client(t, addr)
	for line, want := range map[string]string{
		"NOTHING": "unknown command", "HG.TAKE free": "usage", "HG.TAKE none k": "unknown plan", "HG.TAKE free k x": "no integer",
		"HG.TAKE free k 1 2 3": "costs", "HG.TAKE free k 6": "NEVERADMISSIBLE", "HG.RESERVE free k 1 1": "lease", "HG.RESERVE free k 99999999999": "lease",
		"HG.COMMIT free x 1": "ERR", "CL.THROTTLE k 1 0 1": "rate", "CL.THROTTLE k 1 1 0": "rate", "CL.THROTTLE k 1 x 1": "no integer",
		"CL.THROTTLE k -1 1 1": "max_burst", "CL.THROTTLE k 1 1 99999999999": "period", "CL.THROTTLE k 1 1 1 -1": "quantity",
		"CL.THROTTLE k 9223372036854775807 1 1": "max_burst",
	} {
		require.ErrorContains(t, c.Do(ctx, words(line)...).Err(), want, line)
	}
	require.Error(t, c.Do(ctx, "HG.TAKE", "free", "").Err())
	require.Equal(t, "PONG", do(t, c, "PING"))
	_, addr = start(t, memory.New(nil), func(o *resp.Options) { o.Plan = nil })
	require.ErrorContains(t, client(t, addr).Do(ctx, "HG.TAKE", "free", "k").Err(), "no -policies")
}

// Bytes that are no command end the connection, with an error if they can be told.
func TestProtocolErrors(t *testing.T) {
	_, addr := start(t, memory.New(nil), nil)
	for _, text := range []string{
		"*2\r\n+PING\r\n", "*100000\r\n", "*x\r\n", "*1\r\n$-5\r\n", "*1\r\n$99999999999\r\n", "*1\r\n$1000000\r\n",
		"*1\r\n$4\r\nPINGPONG\r\n", strings.Repeat("x", 100_000), "*1\r\n$4" + strings.Repeat(" ", 5000),
	} {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		_, err = io.WriteString(c, text)
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
		line, err := bufio.NewReader(c).ReadString('\n')
		if err == nil || line != "" { // a reset may overtake the error
			require.Contains(t, line, "ERR Protocol error", text[:min(30, len(text))])
		}
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		_ = c.Close()
	}
}

// Replies of commands that come together leave together, and in order.
func TestPipeline(t *testing.T) {
	_, addr := start(t, memory.New(nil), nil)
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, strings.Repeat("PING a\r\nPING b\r\n", 500))
	require.NoError(t, err)
	in := bufio.NewReader(c)
	for i := range 1000 {
		_, err := in.ReadString('\n')
		require.NoError(t, err)
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, string(rune('a'+i%2)), strings.TrimSpace(line))
	}
}

// The answers that redis-cell 0.5.0 gave to random commands. It counts in whole
// nanoseconds per unit and drops the rest; a TokenBucket is exact. So some answers at an
// edge differ, by one. docs/server.md has these figures.
func TestRedisCell(t *testing.T) {
	f, err := os.Open("testdata/rediscell.tsv.gz")
	require.NoError(t, err)
	defer f.Close()
	text, err := gzip.NewReader(f)
	require.NoError(t, err)
	var now atomic.Int64
	const begin = 1_800_000_000
	_, addr := start(t, memory.New(&memory.Options{Now: func() time.Time { return time.Unix(begin, now.Load()) }}), nil)
	c := client(t, addr)
	total, equal, decisions, seconds, left := 0, 0, 0, 0, 0
	differs := map[string]bool{} // sequences in which a decision differed: their counts do from then on
	for lines := bufio.NewScanner(text); lines.Scan(); {
		v := strings.Split(lines.Text(), "\t")
		if strings.HasPrefix(v[0], "#") || differs[v[0]] {
			continue
		}
		at, err := strconv.ParseInt(v[1], 10, 64)
		require.NoError(t, err)
		now.Store(at)
		line := fmt.Sprintf("CL.THROTTLE %s %s %s %s %s", "seq"+v[0], v[2], v[3], v[4], strings.TrimPrefix(v[5], "-"))
		got, err := c.Do(ctx, words(line)...).Int64Slice()
		if err != nil { // numbers that the recording allows and a TokenBucket does not
			differs[v[0]] = true
			continue
		}
		var want [5]int64
		for i := range want {
			want[i], err = strconv.ParseInt(v[6+i], 10, 64)
			require.NoError(t, err)
		}
		total++
		switch {
		case [5]int64(got) == want:
			equal++
		case got[0] != want[0]:
			decisions++
			differs[v[0]] = true
		case got[2] != want[2]:
			left++
		default:
			seconds++
		}
	}
	t.Logf("%d answers: %.1f %% equal; the decision differs in %d, what is left in %d, seconds in %d", total, 100*float64(equal)/float64(total), decisions, left, seconds)
	require.Greater(t, total, 5000)
	require.Greater(t, float64(equal), 0.85*float64(total))
	require.Less(t, float64(decisions), 0.03*float64(total))
}

// A call that no store decides has no numbers that were counted.
func TestRedisCellInAnOutage(t *testing.T) {
	s, err := standalone.Open("redis://127.0.0.1:1", nil)
	require.NoError(t, err)
	defer s.Close()
	_, addr := start(t, s, func(o *resp.Options) { o.OnFailure = headgate.FailOpen })
	for _, quantity := range []string{"1", "0"} {
		require.Equal(t, []any{int64(0), int64(3), int64(-1), int64(-1), int64(-1)}, do(t, client(t, addr), "CL.THROTTLE k 2 30 60 "+quantity))
	}
}
