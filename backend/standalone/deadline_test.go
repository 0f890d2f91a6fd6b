package standalone_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestTimeIsNamedAsTime: the error of a call that had no answer in time names the time and
// the server, whether the client or the timer ends first. "budget spent" would read like a
// quota.
func TestTimeIsNamedAsTime(t *testing.T) {
	server := redistest.Start(t)
	server.Stop()
	t.Cleanup(server.Cont)
	for range 5 {
		l := limiter(t, server.Client(t), &standalone.Options{Budget: 20 * time.Millisecond}, wide)
		for range 2 { // a third one would open the circuit
			d, err := l.Allow(t.Context(), "k")
			require.NoError(t, err)
			require.Regexp(t, `: `+server.Addr()+`: no answer within 20ms$|could not be answered in time$`, d.Err.Error())
		}
	}
}
