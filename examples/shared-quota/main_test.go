package main

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

func TestJobsShareTheQuota(t *testing.T) {
	redis, err := standalone.Open("redis://"+redistest.Start(t).Addr(), &standalone.Options{Budget: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, redis.Close()) })
	for name, s := range map[string]backend.Store{"memory": memory.New(nil), "redis": redis} {
		t.Run(name, func(t *testing.T) {
			c, err := newClient(s)
			require.NoError(t, err)
			tallies, err := run(t.Context(), c)
			require.NoError(t, err)
			sum := int64(0)
			for _, j := range tallies {
				require.Equal(t, j.reads*readCost+j.searches*searchCost, j.units)
				sum += j.units
			}
			require.EqualValues(t, quota, sum, "not one unit more, and reads use what a search can't")
		})
	}
}

// TestSearchesFit: 95 searches pass, the 96th is denied.
func TestSearchesFit(t *testing.T) {
	c, err := newClient(memory.New(nil))
	require.NoError(t, err)
	for range 95 {
		d, err := c.search(t.Context())
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	d, err := c.search(t.Context())
	require.NoError(t, err)
	require.False(t, d.Allowed)
	require.Equal(t, headgate.FromStore, d.Source)
}

// TestStoreIsDown: no server listens on port 1.
func TestStoreIsDown(t *testing.T) {
	c, err := open("redis://127.0.0.1:1")
	require.NoError(t, err)
	d, err := c.read(t.Context())
	require.NoError(t, err)
	require.True(t, d.Allowed, "reads go on")
	require.Equal(t, headgate.FromFailOpen, d.Source)
	d, err = c.search(t.Context())
	require.NoError(t, err)
	require.False(t, d.Allowed, "searches don't")
	require.Equal(t, headgate.FromFailClosed, d.Source)
	_, err = run(t.Context(), c)
	require.ErrorIs(t, err, headgate.ErrUnavailable)
}
