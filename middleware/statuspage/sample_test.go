package statuspage

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSeries: counts have their step, leave after ten minutes, and a gap is empty.
func TestSeries(t *testing.T) {
	var s series
	at := time.Unix(1e9, 0)
	s.add(at, Counts{Passed: 3})
	s.add(at.Add(step), Counts{Denied: 2})
	require.Equal(t, Counts{Passed: 3, Denied: 2}, s.sum(at.Add(step), steps))
	require.Equal(t, Counts{Denied: 2}, s.sum(at.Add(step), 1))
	require.Equal(t, Counts{Denied: 2}, s.sum(at.Add(steps*step), steps), "the first has left")
	s.add(at.Add(3*steps*step), Counts{Passed: 1})
	require.Equal(t, Counts{Passed: 1}, s.sum(at.Add(3*steps*step), steps))
	require.InDelta(t, 1, (&series{begin: at}).seconds(at), 0)
	require.InDelta(t, 7, s.seconds(at.Add(step+2*time.Second)), 0)
}

// TestAreas: each kind lies on those before, and the highest step fills the chart.
func TestAreas(t *testing.T) {
	l := &LimitStatus{Series: Series{Step: 5, Counts: make([]Counts, steps)}}
	require.Empty(t, l.Areas())
	l.Series.Counts[steps-1] = Counts{Passed: 30, Denied: 10}
	all := l.Areas()
	require.Len(t, all, 2)
	require.True(t, strings.Contains(all[0].Path, "V10.00H240"), all[0].Path)
	require.True(t, strings.Contains(all[1].Path, "V0.00H240V10.00H238"), all[1].Path)
	require.InDelta(t, 8, l.TopRate(), 0)
	require.Equal(t, "1\u202f234\u202f567", number(1234567))
}
