//go:build go1.25

package main

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestInMemory: on a virtual clock the jobs take no longer than the limit asks for.
func TestInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, begin := new(bytes.Buffer), time.Now()
		require.NoError(t, run(t.Context(), out, ""))
		const all = processes * workers * jobs
		require.Contains(t, out.String(), "60 jobs in")
		least := time.Second * (all - burst) / rate
		require.GreaterOrEqual(t, time.Since(begin), least)
		require.LessOrEqual(t, time.Since(begin), least+100*time.Millisecond)
	})
}
