package cluster_test

import (
	"os"
	"testing"

	"github.com/headgate-go/headgate/internal/lab/redistest"
)

// TestMain stops the shared cluster after the last test.
func TestMain(m *testing.M) {
	code := m.Run()
	redistest.CloseShared()
	os.Exit(code)
}
