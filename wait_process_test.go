package headgate_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestWaitProcesses: callers of four processes in a closed loop pass as fast as the
// limit lets them, none waits long, and few calls reach the server.
func TestWaitProcesses(t *testing.T) {
	const processes, callers, rate, burst = 4, 8, 100, 20
	length := 3 * time.Second
	if redistest.Long() {
		length = 30 * time.Second
	}
	if _, ok := redistest.Child(); ok {
		waiting(t, callers, length)
		return
	}
	limit, fifo := rate*length.Seconds()+burst, time.Second*processes*callers/rate
	var admitted, asked int
	var longest time.Duration
	for range 3 { // a busy machine may stall a process for longer than the bucket takes to fill
		admitted, asked, longest = waitAll(t, processes)
		t.Logf("admitted %.3f of the limit, %.2f calls each, longest wait %.2f of a FIFO's", float64(admitted)/limit,
			float64(asked)/float64(admitted), longest.Seconds()/fifo.Seconds())
		if float64(admitted) >= 0.98*limit && longest <= 2*fifo {
			break
		}
	}
	require.LessOrEqual(t, asked, 2*admitted)
	if redistest.Long() { // TestRivals of internal/wait has the same bounds without a machine's stalls
		require.GreaterOrEqual(t, float64(admitted), 0.98*limit)
		require.LessOrEqual(t, longest, 2*fifo)
	}
}

// waitAll returns the sums, and the longest wait, of the children.
func waitAll(t *testing.T, processes int) (admitted, asked int, longest time.Duration) {
	t.Helper()
	server := redistest.Start(t)
	for _, line := range redistest.Processes(t, processes, t.Name(), "WAIT_ADDR="+server.Addr()) {
		var a, c int
		var text string
		_, err := fmt.Sscan(line, &a, &c, &text)
		require.NoError(t, err, line)
		l, err := time.ParseDuration(text)
		require.NoError(t, err, line)
		admitted, asked, longest = admitted+a, asked+c, max(longest, l)
	}
	return admitted, asked, longest
}

// waiting is a child: its callers wait for one key until the time is over. It reports
// the admissions, the calls that reached the server, and the longest wait.
func waiting(t *testing.T, callers int, length time.Duration) {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("WAIT_ADDR")})
	defer client.Close()
	seen := &events{}
	l := limiter(t, standalone.New(client, &standalone.Options{Budget: time.Second}), &headgate.Options{Observer: seen.observe},
		headgate.Policy{Name: "p", Algorithm: algo.TokenBucket(algo.PerSecond(100), 20), OnFailure: headgate.FailClosed})
	_, err := l.Peek(context.Background(), headgate.Call{Key: "k"}) // loads the script
	require.NoError(t, err)
	redistest.Ready()
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	waits := make([][]time.Duration, callers)
	faulttest.Go(callers, func(i int) {
		for {
			begin := time.Now()
			if _, err := l.Wait(ctx, "k"); err != nil {
				return
			}
			waits[i] = append(waits[i], time.Since(begin))
		}
	})()
	asked := 0
	for _, e := range seen.of(headgate.EventBatch) {
		asked += e.Batch.Calls
	}
	passed := slices.Concat(waits...)
	redistest.Result("%d %d %v", len(passed), asked, slices.Max(passed))
}
