package headgate_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// again runs one test of this binary in a process of its own, and returns what
// that wrote to its standard error.
func again(t *testing.T, test string, env ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), env...), "GORACE=atexit_sleep_ms=0") // a second else
	var stderr writes
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s", out, stderr)
	require.Contains(t, string(out), "--- PASS: "+test)
	return string(stderr)
}

type writes []byte

func (w *writes) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}

// TestFIPS: where the Go runtime refuses SHA-1, the package loads, and the
// stores decide.
func TestFIPS(t *testing.T) {
	server := redistest.Start(t)
	again(t, "TestInFIPSMode", "GODEBUG=fips140=only", "HEADGATE_FIPS_SERVER="+server.Addr())
}

// TestInFIPSMode is what TestFIPS runs.
func TestInFIPSMode(t *testing.T) {
	addr := os.Getenv("HEADGATE_FIPS_SERVER")
	if addr == "" {
		t.Skip("TestFIPS runs it")
	}
	redis, err := standalone.Open("redis://"+addr, &standalone.Options{Budget: 10 * time.Second})
	require.NoError(t, err)
	defer redis.Close()
	for _, s := range []backend.Store{memory.New(nil), redis} {
		l, err := headgate.New(s, []headgate.Policy{perMinute}, nil)
		require.NoError(t, err)
		for i := range 3 {
			d, err := l.Allow(context.Background(), "user:42")
			require.NoError(t, err)
			require.Equal(t, headgate.FromStore, d.Source, fmt.Sprint(d.Err))
			require.EqualValues(t, i+1, d.Used)
		}
	}
}
