package load

import (
	"slices"
	"time"
)

// Quantile is the least latency that at least the share q of all latencies does
// not exceed (nearest rank), and 0 if there are none. It sorts waits in place,
// so a second call is cheap.
func Quantile(waits []time.Duration, q float64) time.Duration {
	if len(waits) == 0 {
		return 0
	}
	slices.Sort(waits)
	rank := int(q * float64(len(waits)))
	if float64(rank) == q*float64(len(waits)) {
		rank--
	}
	return waits[min(max(rank, 0), len(waits)-1)]
}
