package postgrestest

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of processor time in /proc.
const tick = 10 * time.Millisecond

// Processor returns the processor time that all processes of the server have used, with those that
// have ended. It is 0 where there is no /proc.
func (s *Server) Processor() (used time.Duration) {
	for i, pid := range s.processes() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		_, rest, _ := bytes.Cut(stat, []byte(") "))
		fields := bytes.Fields(rest)
		if len(fields) < 15 {
			continue
		}
		own := fields[11:13]
		if i == 0 { // the parent of all has the times of those that have ended
			own = fields[11:15]
		}
		for _, f := range own {
			n, _ := strconv.ParseInt(string(f), 10, 64)
			used += time.Duration(n) * tick
		}
	}
	return used
}
