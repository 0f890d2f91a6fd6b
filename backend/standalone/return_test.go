package standalone_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/stretchr/testify/require"
)

// TestReturnOfEndedLoans: loans that ended unsettled are charged, so a Return takes their units out
// of a log, those of the newest first. What is still lent stays.
func TestReturnOfEndedLoans(t *testing.T) {
	onBothTwins(t, func(l lender) {
		l.ask(backend.Take, 3, nil, nil)
		var ends [3]int64
		for i, term := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
			loan := &backend.Loan{ID: backend.LeaseID{byte(2 + i)}, Seq: 1, Term: term, Want: 10}
			l.ask(backend.Borrow, 0, loan, nil)
			require.EqualValues(l.t, 10, loan.Lent.Units)
			ends[i] = *l.at + (loan.Lent.Ends + 2*term).Microseconds()
		}
		*l.at = ends[1]
		for _, c := range []struct{ back, used, newest int64 }{
			{4, 29, ends[1] - 1}, {6, 23, ends[0] - 1}, {1, 22, ends[0] - 1}, {10, 12, trace.Start}, {9, 10, ends[2] - 1},
		} {
			state := l.ask(backend.Return, c.back, nil, nil)
			require.Equal(l.t, []int64{c.used, 10}, []int64{state.Used, state.Lent}, "%v in %T: a Return of %d", l.a, l.s, c.back)
			require.EqualValues(l.t, max(c.newest, ends[2]-1)+60_000_000-*l.at, state.ResetAfter.Microseconds(), "%v in %T: a Return of %d", l.a, l.s, c.back)
		}
		l.ask(backend.Take, 2, nil, nil)
		require.EqualValues(l.t, 12, l.ask(backend.Peek, 1, nil, nil).Used, "%v in %T", l.a, l.s)
		*l.at = ends[2]
		require.EqualValues(l.t, 0, l.ask(backend.Return, 100, nil, nil).Used, "%v in %T", l.a, l.s)
	}, algo.SlidingLog(algo.PerMinute(100)), algo.CompactLog(algo.PerMinute(100)))
}
