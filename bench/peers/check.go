package peers

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/bench/load"
)

// Of a check's calls, all but the last checkDeny have to pass. checkTry is the
// number of keys that are tried.
const (
	checkPass = 25
	checkDeny = 7
	checkTry  = 5
)

// Check holds a subject to its limit before it is timed, since a limiter that
// is set up wrongly may well be the fastest. Of 32 calls in a row on one key
// exactly 25 pass. The calls are made by several limiters in turn where several
// share one count. A floor only has to answer. If a call fails, as on a busy
// machine, the count is unknown, and another key is tried.
func Check(m Maker, limiters int, key string) error {
	all := make([]*Subject, limiters)
	for i := range all {
		s, err := m.Make(Limit{Rate: checkPass, Period: time.Hour, Burst: checkPass, Window: time.Hour, Fill: 1})
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		defer s.Close()
		all[i] = s
	}
	calls, want := checkPass+checkDeny, [3]int{load.Passed: checkPass, load.Denied: checkDeny}
	if m.Kind == Floor {
		want = [3]int{load.Passed: calls}
	}
	var count [3]int
	for try := range checkTry {
		count = ask(all, calls, fmt.Sprintf("%s:%d", key, try))
		if count[load.Failed] == 0 {
			break
		}
	}
	if count != want {
		return fmt.Errorf("%s does not limit as it should: of %d calls %d passed, %d were denied, %d failed; want %d passed",
			m.Name, calls, count[load.Passed], count[load.Denied], count[load.Failed], want[load.Passed])
	}
	return nil
}

// ask makes the calls one after the other: concurrent ones would also be exact,
// but a failure would be harder to read.
func ask(all []*Subject, calls int, key string) (count [3]int) {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	for i := range calls {
		count[all[i%len(all)].Allow(ctx, key)]++
	}
	return count
}
