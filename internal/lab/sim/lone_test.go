//go:build go1.26

package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestLoneCallers: a caller of a server that is 80 ms away has its first decision within a second,
// from nothing, by TCP and by TLS, although a round trip is slow once.
func TestLoneCallers(t *testing.T) {
	redistest.Plain(t)
	if _, err := Execute(0, "-test.run=^$"); errors.Is(err, syscall.EPERM) {
		t.Skip("this machine forbids ptrace, which fixes the order of a run: ", err)
	}
	var mu sync.Mutex
	first := map[bool][]time.Duration{} // by whether TLS is used
	many(redistest.Steps(20, 1000), func(i int) {
		out, failed := trial{int64(1 + i), Shape{Lone: true}}.run(-1, false)
		if failed {
			t.Errorf("%s\ngo test ./internal/lab/sim -run Seed -seed %d -lone -v", out, 1+i)
		}
		mu.Lock()
		defer mu.Unlock()
		var secure bool
		var after int64
		_, line, _ := strings.Cut(out, "TLS: ")
		_, _ = fmt.Sscanf(line, "%t, first decision after %d µs", &secure, &after)
		first[secure] = append(first[secure], time.Duration(after)*time.Microsecond)
	})
	for secure, all := range first {
		slices.Sort(all)
		t.Logf("TLS: %v: %d callers, first decision after %v at least, %v at the median, %v at most", secure, len(all), all[0], all[len(all)/2], all[len(all)-1])
	}
	require.Len(t, first, 2)
}
