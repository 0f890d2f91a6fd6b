package headgate_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// crowdedOrg is an organisation at nine tenths of its limit, which is ten times a
// user's: sixteen users at half of their limits, and one at ten times its limit.
type crowdedOrg struct{ user, org *headgate.Limiter }

const (
	userRate   = 20 // calls per second
	orgRate    = 10 * userRate
	otherUsers = 16
	otherRate  = userRate / 2 // others and the one are 180 per second together
	deniedRate = 10 * userRate
	orgProcess = 8
)

func newCrowdedOrg(t *testing.T, users, orgs backend.Store, o *headgate.Options) crowdedOrg {
	rule := func(name string, n int64) headgate.Policy {
		return headgate.Policy{Name: name, Algorithm: algo.TokenBucket(algo.PerSecond(n), n), OnFailure: headgate.FailClosed}
	}
	return crowdedOrg{limiter(t, users, nil, rule("user", userRate)), limiter(t, orgs, o, rule("org", orgRate))}
}

// load has one of so many processes call for so many seconds. It returns how many calls
// of others there were, how many of these were denied, those of the one user that were,
// and how many of all were admitted.
func (c crowdedOrg) load(t *testing.T, seconds, processes int) (others, wrong, right, admitted int64) {
	var n, w, r, a atomic.Int64
	var all sync.WaitGroup
	for i := range otherUsers + 1 {
		key, perSecond, denied := fmt.Sprint("other", i), otherRate, &w
		if i == otherUsers {
			key, perSecond, denied = "denied", deniedRate, &r
		}
		all.Add(1)
		go func() {
			defer all.Done()
			tick := time.NewTicker(time.Second * time.Duration(processes) / time.Duration(perSecond))
			defer tick.Stop()
			for range seconds * perSecond / processes {
				<-tick.C
				d, err := headgate.All(context.Background(), c.user.Part(key), c.org.Part("7"))
				if err != nil || d.Err != nil {
					t.Error(err, d.Err)
				}
				if i < otherUsers {
					n.Add(1)
				}
				if d.Allowed {
					a.Add(1)
				} else {
					denied.Add(1)
				}
			}
		}()
	}
	all.Wait()
	return n.Load(), w.Load(), r.Load(), a.Load()
}

// checkOthers requires that no more than one call in a thousand of others was denied,
// and that the organisation was asked for no more calls than were admitted, and one per
// second and process.
func checkOthers(t *testing.T, seconds, processes int, others, wrong, right, admitted, asked int64) {
	t.Logf("organisation at %.2f of its limit; %d of %d calls of others denied, %d of one user; the organisation was asked %d times more than admitted",
		float64(admitted)/float64(seconds*orgRate), wrong, others, right, asked-admitted)
	if redistest.Long() { // a busy machine takes longer for as many calls
		require.Greater(t, admitted, int64(seconds*orgRate*85/100))
	}
	require.LessOrEqual(t, 1000*wrong, others)
	require.Greater(t, right, int64(seconds*deniedRate/2))
	require.LessOrEqual(t, asked-admitted, int64(seconds*processes))
}

// TestAllOthersPass: one user at ten times its limit takes nothing of an organisation
// at nine tenths of its own. Others are not denied, and the organisation's store is not
// asked for the calls that are.
func TestAllOthersPass(t *testing.T) {
	t.Parallel()
	const seconds = 3
	org, asked := asking(memory.New(nil))
	c := newCrowdedOrg(t, memory.New(nil), org, nil)
	others, wrong, right, admitted := c.load(t, seconds, 1)
	checkOthers(t, seconds, 1, others, wrong, right, admitted, asked.Load())
}

// asking returns a store over s that counts the requests for admission.
func asking(s backend.Store) (*fake, *atomic.Int64) {
	n := new(atomic.Int64)
	return &fake{Store: s, do: func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		if r.Op == backend.Take || r.Op == backend.Reserve {
			n.Add(1)
		}
		return next.Do(ctx, r, d)
	}}, n
}

// TestAllOthersPassOnServers is TestAllOthersPass for eight processes, users on one
// server and the organisation on another.
func TestAllOthersPassOnServers(t *testing.T) {
	t.Parallel()
	seconds := redistest.Steps(4, 32)
	if _, ok := redistest.Child(); ok {
		stores := [2]backend.Store{}
		for i, addr := range strings.Split(os.Getenv("ALL_ADDRS"), ",") {
			client := redis.NewClient(&redis.Options{Addr: addr})
			defer client.Close()
			stores[i] = standalone.New(client, &standalone.Options{Budget: 20 * time.Second})
		}
		seen := &events{}
		c := newCrowdedOrg(t, stores[0], stores[1], &headgate.Options{Observer: seen.observe})
		for _, l := range []*headgate.Limiter{c.user, c.org} {
			_, err := l.Peek(context.Background(), headgate.Call{Key: "any"}) // loads the script
			require.NoError(t, err)
		}
		redistest.Ready()
		others, wrong, right, admitted := c.load(t, seconds, orgProcess)
		asked := 0
		for _, e := range seen.of(headgate.EventBatch) {
			asked += e.Batch.Calls
		}
		redistest.Result("%d %d %d %d %d", others, wrong, right, admitted, asked)
		return
	}
	users, orgs := redistest.Start(t), redistest.Start(t)
	var sum [5]int64
	for _, line := range redistest.Processes(t, orgProcess, t.Name(), "ALL_ADDRS="+users.Addr()+","+orgs.Addr()) {
		var n [5]int64
		_, err := fmt.Sscan(line, &n[0], &n[1], &n[2], &n[3], &n[4])
		require.NoError(t, err, line)
		for i := range n {
			sum[i] += n[i]
		}
	}
	checkOthers(t, seconds, orgProcess, sum[0], sum[1], sum[2], sum[3], sum[4])
}
