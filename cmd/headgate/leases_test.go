package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/stretchr/testify/require"
)

// TestLeases: open leases of a key are listed with what they were charged.
// What was settled or reset is not, nor is another key's.
func TestLeases(t *testing.T) {
	for where, p := range places(t) {
		t.Run(where, func(t *testing.T) {
			slots := headgate.Policy{Name: "slots", Algorithm: algo.InFlight(20), OnFailure: headgate.FailClosed}
			tokens := headgate.Policy{Name: "tokens", Algorithm: algo.SlidingLog(algo.PerHour(5000)), OnFailure: headgate.FailClosed}
			daily := headgate.Policy{Name: "daily", Algorithm: algo.FixedWindow(algo.PerDay(5000)), OnFailure: headgate.FailClosed}
			l, err := headgate.New(p.store, []headgate.Policy{slots, tokens, daily}, nil)
			require.NoError(t, err)
			reserve := func(l *headgate.Limiter, key string, lease time.Duration, costs ...int64) *headgate.Reservation {
				r, d, err := l.Reserve(t.Context(), headgate.Call{Key: key, Lease: lease, Costs: costs})
				require.NoError(t, err)
				require.True(t, d.Allowed)
				return r
			}
			list := func(key string) []lease {
				return decode[leased](t, 0, append([]string{"leases", key}, p.args...)...).Leases
			}
			for _, key := range names {
				require.Empty(t, list(key), "%q", key)
				first := reserve(l, key, time.Hour, 1, 3000, 7)
				second := reserve(l, key, time.Minute, 0, 5, 1)
				got := list(key)
				require.Len(t, got, 2, "%q", key)
				require.Equal(t, []string{second.ID(), first.ID()}, []string{got[0].ID, got[1].ID})
				require.Equal(t, []charge{{"slots", "InFlight", 0}, {"tokens", "SlidingLog", 5}, {"daily", "FixedWindow", 1}}, got[0].Charges)
				require.Equal(t, []charge{{"slots", "InFlight", 1}, {"tokens", "SlidingLog", 3000}, {"daily", "FixedWindow", 7}}, got[1].Charges)
				require.EqualValues(t, time.Hour.Microseconds(), got[1].Length)
				require.InDelta(t, time.Hour.Microseconds(), got[1].Ends, 60e6)
				require.Contains(t, exec(t, 0, append([]string{"leases", key}, p.args...)...), "slots 1, tokens 3000, daily 7")
				require.Contains(t, exec(t, 0, append([]string{"peek", key}, p.args...)...), "slots, InFlight: calls running now: 1; the last of their leases ends in ")
				require.NoError(t, second.Commit(t.Context()))
				require.Len(t, list(key), 1)
				require.NoError(t, l.Reset(t.Context(), key))
				require.Empty(t, list(key))
				require.ErrorIs(t, first.Commit(t.Context()), headgate.ErrNotHeld)
			}
			require.Contains(t, exec(t, 0, append([]string{"leases", "none"}, p.args...)...), "none has no open lease")

			name := "headgate:{garbage}:l:" + string(make([]byte, 16))
			require.NoError(t, p.admin.Set(t.Context(), name, "text", 0).Err())
			require.Contains(t, exec(t, 0, append([]string{"leases", "garbage"}, p.args...)...), "not known to this release")
		})
	}
}

// TestResetFreesSlots: a reset frees the slots of dead jobs at once, and ends the leases of
// living ones. With a file that has only the InFlight policy, other counts stay.
func TestResetFreesSlots(t *testing.T) {
	file := filepath.Join(t.TempDir(), "slots.yaml")
	require.NoError(t, os.WriteFile(file, []byte("policies:\n  slots: {algorithm: in-flight, limit: 2, on-failure: closed}\n"), 0o600))
	for where, p := range places(t) {
		t.Run(where, func(t *testing.T) {
			l, err := headgate.New(p.store, []headgate.Policy{
				{Name: "slots", Algorithm: algo.InFlight(2), OnFailure: headgate.FailClosed},
				{Name: "calls", Algorithm: algo.SlidingLog(algo.PerHour(100)), OnFailure: headgate.FailClosed},
			}, nil)
			require.NoError(t, err)
			reserve := func() (*headgate.Reservation, bool) {
				r, d, err := l.Reserve(t.Context(), headgate.Call{Key: "jobs", Lease: time.Hour})
				require.NoError(t, err)
				return r, d.Allowed
			}
			used := func() int64 {
				each := make([]headgate.State, 2)
				_, err := l.Peek(t.Context(), headgate.Call{Key: "jobs", Each: each})
				require.NoError(t, err)
				return each[1].Used
			}
			for i, args := range [][]string{{"reset", "jobs", "-policies", file}, {"reset", "jobs"}} {
				_, passes := reserve() // of a job that dies
				require.True(t, passes)
				living, passes := reserve()
				require.True(t, passes)
				_, passes = reserve()
				require.False(t, passes)
				require.Contains(t, exec(t, 0, append([]string{"leases", "jobs"}, p.args...)...), resetsAll)
				exec(t, 0, append(args, p.args...)...)
				require.NotContains(t, exec(t, 0, append([]string{"leases", "jobs"}, p.args...)...), resetsAll)
				require.EqualValues(t, []int64{2, 0}[i], used())
				require.ErrorIs(t, living.Extend(t.Context()), headgate.ErrNotHeld)
				for range 2 {
					r, passes := reserve()
					require.True(t, passes)
					require.NoError(t, r.Close())
				}
			}
		})
	}
}
