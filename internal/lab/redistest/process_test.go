package redistest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProcesses(t *testing.T) {
	if i, ok := Child(); ok {
		Ready()
		Result("child %d", i)
		Result("with %s", os.Getenv("GREETING"))
		return
	}
	got := Processes(t, 3, t.Name(), "GREETING=hello")
	assert.Equal(t, []string{"child 0\nwith hello", "child 1\nwith hello", "child 2\nwith hello"}, got)
}

// Each child tells Redis that it has begun, and then how many had not got as
// far as Ready when it was let go.
func TestReadyWaitsForAll(t *testing.T) {
	if i, ok := Child(); ok {
		dir := os.Getenv("DIR")
		if i == 0 {
			time.Sleep(100 * time.Millisecond) // the straggler
		}
		require.NoError(t, os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o600))
		Ready()
		there, err := os.ReadDir(dir)
		require.NoError(t, err)
		Result("%d", len(there))
		return
	}
	got := Processes(t, 3, t.Name(), "DIR="+t.TempDir())
	assert.Equal(t, []string{"3", "3", "3"}, got)
}

func TestFailingChildFailsTheTest(t *testing.T) {
	if i, ok := Child(); ok {
		if i == 1 {
			t.Fatal("child one is unwell")
		}
		Ready() // must not wait for the dead
		return
	}
	r := observe(t, func(tb testing.TB) { Processes(tb, 2, t.Name()) })
	require.Len(t, r.errors, 1)
	assert.Contains(t, r.errors[0], "child 1: exit status 1")
	assert.Contains(t, r.errors[0], "child one is unwell")
}

func TestSubtestsRunAlone(t *testing.T) {
	t.Run("a (b)", func(t *testing.T) {
		if _, ok := Child(); ok {
			Result("me")
			return
		}
		assert.Equal(t, []string{"me"}, Processes(t, 1, t.Name()))
	})
	t.Run("a", func(t *testing.T) {
		if _, ok := Child(); ok {
			Result("not me")
		}
	})
}

func TestChildrenStartNoChildren(t *testing.T) {
	t.Setenv(childEnv, "0")
	r := observe(t, func(tb testing.TB) { Processes(tb, 1, t.Name()) })
	assert.Contains(t, r.fatal, "within a child")
}
