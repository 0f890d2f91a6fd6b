package headgate_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestFloodOfEachVerb: whatever verb asks for a spent key, it is answered in the
// process: its server gets at most two commands per second. Without the deny cache each
// call reaches it.
func TestFloodOfEachVerb(t *testing.T) {
	verbs := map[string]func(l levels) (headgate.Decision, error){
		"Take": func(l levels) (headgate.Decision, error) { return l.org.Allow(context.Background(), "spent") },
		"AtMost": func(l levels) (headgate.Decision, error) {
			return l.org.AllowAtMost(context.Background(), "spent", 5)
		},
		"Reserve": func(l levels) (headgate.Decision, error) {
			_, d, err := l.org.Reserve(context.Background(), headgate.Call{Key: "spent"})
			return d, err
		},
		"All": func(l levels) (headgate.Decision, error) {
			return headgate.All(context.Background(), l.user.Part("u"), l.org.Part("spent"))
		},
		"ReserveAll": func(l levels) (headgate.Decision, error) {
			_, d, err := headgate.ReserveAll(context.Background(), l.user.Part("u"), l.org.Part("spent"))
			return d, err
		},
	}
	for name, ask := range verbs {
		for _, servers := range []string{"one server", "two servers"} {
			if servers == "two servers" && !strings.HasSuffix(name, "All") {
				continue
			}
			for _, ttl := range []time.Duration{0, -1} {
				t.Run(name+"/"+servers+"/"+ttl.String(), func(t *testing.T) {
					t.Parallel()
					floodOf(t, ask, servers == "two servers", ttl)
				})
			}
		}
	}
}

func floodOf(t *testing.T, ask func(levels) (headgate.Decision, error), apart bool, ttl time.Duration) {
	const seconds, callers = 2, 4
	orgs := redistest.Start(t)
	users, o := unhurried(t, orgs), &headgate.Options{DenyCacheTTL: ttl}
	l := levels{org: limiter(t, users, o, hourly)}
	if apart {
		users = unhurried(t, redistest.Start(t))
	}
	l.user = limiter(t, users, o, level("user", 1_000_000))
	_, err := l.org.AllowN(context.Background(), "spent", 10)
	require.NoError(t, err)
	_, err = ask(l)
	require.NoError(t, err)
	l.quiet(t)
	orgs.ResetStats(t)
	var asked atomic.Int64
	end := time.Now().Add(seconds * time.Second)
	faulttest.Go(callers, func(int) {
		for time.Now().Before(end) && (ttl == 0 || asked.Load() < 50) {
			d, err := ask(l)
			if err != nil || d.Err != nil || d.Allowed {
				t.Error(d, err)
				return
			}
			asked.Add(1)
			time.Sleep(time.Millisecond)
		}
	})()
	l.quiet(t)
	sent := orgs.CommandStats(t)["evalsha"].Calls
	t.Logf("%d calls, %d commands", asked.Load(), sent)
	if ttl < 0 {
		require.GreaterOrEqual(t, sent, asked.Load()/callers, "calls may merge")
		return
	}
	require.Greater(t, asked.Load(), int64(50))
	most := int64(2 * seconds)
	if redistest.Raced {
		most *= 4 // they are slow to note the next denial then
	}
	require.LessOrEqual(t, sent, most)
}
