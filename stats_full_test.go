package headgate_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestFullStore: a store in memory without free counts is seen, by an event and a line per
// class and minute, and in Stats. A limiter without an observer logs, too.
func TestFullStore(t *testing.T) {
	var now = time.Unix(1_745_000_000, 0)
	store := memory.New(&memory.Options{MaxKeys: 10, Now: func() time.Time { return now }})
	policy := func(class string) headgate.Policy {
		return headgate.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailClosed, Class: class}
	}
	seen, lines := &events{}, &lockedBuffer{}
	watched, err := headgate.New(store, []headgate.Policy{policy("a")}, &headgate.Options{Observer: seen.observe})
	require.NoError(t, err)
	logged, err := headgate.New(store, []headgate.Policy{policy("b")}, &headgate.Options{Logger: slog.New(slog.NewTextHandler(lines, nil))})
	require.NoError(t, err)
	flood := func(l *headgate.Limiter) {
		for i := range 20 {
			_, err := l.Allow(context.Background(), fmt.Sprint(i))
			require.NoError(t, err)
		}
	}
	full := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool {
			return len(seen.of(headgate.EventFull)) == n && strings.Count(lines.String(), "no free count") == n
		}, 20*time.Second, time.Millisecond)
	}
	require.Zero(t, watched.Stats().Memory.Shared)
	flood(watched)
	full(1)
	require.Equal(t, backend.Full{Class: "a", Counts: 5, MaxCounts: 10}, seen.of(headgate.EventFull)[0].Full)
	flood(logged)
	full(2)
	flood(logged)
	now = now.Add(59 * time.Second)
	flood(logged)
	now = now.Add(time.Second)
	flood(watched)
	full(3)
	require.Contains(t, lines.String(), "class=b")
	st := logged.Stats().Memory
	require.Equal(t, 10, st.MaxCounts)
	require.Len(t, st.Classes, 2)
	require.EqualValues(t, 15+12, st.Classes[0].Shared, "three keys got counts by the other class: a class is no part of whose count it is")
	require.Equal(t, st.Classes[0].Shared+st.Classes[1].Shared, st.Shared)
}

// lockedBuffer is a buffer that a logger writes while a test reads.
type lockedBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}
