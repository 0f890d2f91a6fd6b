package redistest

import "testing"

// NoImmortals is Server.NoImmortals on all living primaries. Not while a slot
// is open: a node does not speak of a key that may be at the other.
func (c *Cluster) NoImmortals(t testing.TB, prefix string) {
	t.Helper()
	for _, n := range c.primaries() {
		n.NoImmortals(t, prefix)
	}
}

// CommandStats are those of all living nodes, added up. What a script called is
// counted at its primary and, if it wrote, at the replica; EVALSHA itself is
// never replicated.
func (c *Cluster) CommandStats(t testing.TB) map[string]Stat {
	t.Helper()
	sum := map[string]Stat{}
	for _, n := range c.living() {
		for name, s := range n.CommandStats(t) {
			sum[name] = sum[name].plus(s)
		}
	}
	return sum
}

func (s Stat) plus(o Stat) Stat {
	sum := Stat{
		Calls: s.Calls + o.Calls, Usec: s.Usec + o.Usec,
		Rejected: s.Rejected + o.Rejected, Failed: s.Failed + o.Failed,
	}
	if sum.Calls > 0 { // a command may have been refused only
		sum.PerCall = float64(sum.Usec) / float64(sum.Calls)
	}
	return sum
}

// ResetStats is Server.ResetStats on all living nodes.
func (c *Cluster) ResetStats(t testing.TB) {
	t.Helper()
	for _, n := range c.living() {
		n.ResetStats(t)
	}
}
