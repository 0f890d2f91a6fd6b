package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// asProcess in the environment makes the test binary one of the processes.
const asProcess = "HEADGATE_EXAMPLE_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestProcesses: four processes on a real server run all jobs, within the limits.
func TestProcesses(t *testing.T) {
	t.Setenv(asProcess, "1")
	out := new(bytes.Buffer)
	require.NoError(t, run(t.Context(), out, "redis://"+redistest.Start(t).Addr()))
	require.Equal(t, processes, strings.Count(out.String(), "    15  "))
	require.Contains(t, out.String(), "60 jobs in")
}

// TestJudge: a job that begins when another ends does not run beside it.
func TestJudge(t *testing.T) {
	at := func(begin, end int) job {
		return job{Began: time.UnixMilli(int64(begin)), End: time.UnixMilli(int64(end))}
	}
	began, most := judge([][]job{{at(0, 10), at(10, 20)}, {at(5, 15)}, {at(9, 11)}})
	require.Equal(t, 4, began)
	require.Equal(t, 3, most)
}
