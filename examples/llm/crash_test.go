package main

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestProcessDies: a process that is killed in the middle of a reply holds its slots
// until its lease ends. What it reserved stays charged.
func TestProcessDies(t *testing.T) {
	_, child := redistest.Child()
	addr := os.Getenv("LLM_ADDR")
	if !child {
		addr = redistest.Start(t).Addr()
		redistest.Processes(t, 1, t.Name(), "LLM_ADDR="+addr)
	}
	store, err := standalone.Open("redis://"+addr, &standalone.Options{Budget: 10 * time.Second})
	require.NoError(t, err)
	defer store.Close()
	g, err := newGateway(store, time.Second)
	require.NoError(t, err)
	c := call{"tenant:web", "org:acme", 50, 1000}
	if child {
		redistest.Ready()
		_, err := g.complete(t.Context(), c, words(250, 100, redistest.Die), io.Discard)
		require.NoError(t, err)
		return
	}
	used := func(i int) [2]int64 {
		tenant, err := peek(t.Context(), g.tenants, c.tenant)
		require.NoError(t, err)
		org, err := peek(t.Context(), g.orgs, c.org)
		require.NoError(t, err)
		return [2]int64{tenant[i].Used, org[i].Used}
	}
	require.Equal(t, [2]int64{1050, 1050}, used(1))
	require.Eventually(t, func() bool { return used(2) == [2]int64{} }, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, [2]int64{1050, 1050}, used(1))
}
