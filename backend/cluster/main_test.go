package cluster_test

import (
	"testing"

	"github.com/headgate-go/headgate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
