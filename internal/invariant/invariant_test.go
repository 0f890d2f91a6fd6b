package invariant_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/headgate-go/headgate/internal/invariant"
	"github.com/stretchr/testify/require"
)

// TestHolds: a broken invariant ends the process, also below a recover.
func TestHolds(t *testing.T) {
	invariant.Holds(true, "what holds")
	if os.Getenv("HEADGATE_BROKEN") != "" {
		defer func() { _ = recover() }()
		invariant.Holds(false, "what does not hold")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestHolds$")
	cmd.Env = append(os.Environ(), "HEADGATE_BROKEN=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "broken invariant: what does not hold")
}
