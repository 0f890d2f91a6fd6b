package starved

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// waitedForProcessor returns for how long the threads of this process have waited for a processor, in
// sum. It is 0 if the kernel does not report it; see sched-stats of the Linux documentation.
func waitedForProcessor() (sum time.Duration) {
	threads, _ := filepath.Glob("/proc/self/task/*/schedstat")
	for _, name := range threads {
		var ran, waited int64
		if b, err := os.ReadFile(name); err == nil {
			_, _ = fmt.Sscan(string(b), &ran, &waited)
			sum += time.Duration(waited)
		}
	}
	return sum
}
