package batch

import "syscall"

// osYield lets the other processes of this host run first, if any wait for a processor. It
// costs a caller that is refused nothing else. A caller that is refused at once calls again
// at once, or does the work that the call has let pass. Without osYield that keeps the
// processors from a server on this host, and from what shows that it is well.
func osYield() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }
