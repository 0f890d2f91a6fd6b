package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// Stat is what a server counted for one command.
type Stat struct {
	Calls    int64   // executed, also from within a script
	Usec     int64   // server time of all calls, µs; a script's includes what it called
	PerCall  float64 // µs
	Rejected int64   // refused before execution: ACL, arity, out of memory
	Failed   int64   // executed, and ended in an error
}

// CommandStats reads INFO commandstats. Names are Redis's own: "evalsha",
// "script|load". A command that was never called has no entry.
func (s *Server) CommandStats(t testing.TB) map[string]Stat {
	t.Helper()
	return addUp(t, []*node{{Server: s}})
}

// CommandStats are those of all living nodes, added up. What a script called is
// counted at its primary and, if it wrote, at the replica. EVALSHA itself is
// never replicated.
func (c *Cluster) CommandStats(t testing.TB) map[string]Stat {
	t.Helper()
	return addUp(t, c.living())
}

func addUp(t testing.TB, nodes []*node) map[string]Stat {
	t.Helper()
	sum := map[string]Stat{}
	for _, n := range nodes {
		info, err := n.Client(t).InfoMap(context.Background(), "commandstats").Result()
		check(t, err)
		for name, fields := range info["Commandstats"] {
			name = strings.TrimPrefix(name, "cmdstat_")
			sum[name] = sum[name].plus(t, fields)
		}
	}
	return sum
}

// plus adds the fields of one line. PerCall is computed, since a server's own
// figure can't be added, and is zero for a command that was only refused.
func (s Stat) plus(t testing.TB, fields string) Stat {
	t.Helper()
	var o Stat
	const layout = "calls=%d,usec=%d,usec_per_call=%f,rejected_calls=%d,failed_calls=%d"
	if _, err := fmt.Sscanf(fields, layout, &o.Calls, &o.Usec, &o.PerCall, &o.Rejected, &o.Failed); err != nil {
		t.Fatalf("redistest: commandstats %q: %v", fields, err)
	}
	s.Calls, s.Usec, s.Rejected, s.Failed = s.Calls+o.Calls, s.Usec+o.Usec, s.Rejected+o.Rejected, s.Failed+o.Failed
	s.PerCall = float64(s.Usec) / float64(max(s.Calls, 1))
	return s
}

// ResetStats sets all of CommandStats to zero.
func (s *Server) ResetStats(t testing.TB) {
	t.Helper()
	do(t, s.Client(t), "CONFIG", "RESETSTAT")
}

// ResetStats is Server.ResetStats on all living nodes.
func (c *Cluster) ResetStats(t testing.TB) {
	t.Helper()
	for _, n := range c.living() {
		n.ResetStats(t)
	}
}
