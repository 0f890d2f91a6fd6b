package main

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate"
)

// undecided logs why no store decided calls, at most one line per second. The metrics
// have how many there were.
type undecided struct {
	log  *slog.Logger
	next atomic.Int64 // UnixNano from which on a line is due
}

// undecidedEvery is the time between two lines.
const undecidedEvery = time.Second

// observe runs on the path of each call.
func (u *undecided) observe(e *headgate.Event) {
	if e.Type != headgate.EventDecision || e.Err != nil || e.Decision.Err == nil {
		return
	}
	switch e.Decision.Source {
	case headgate.FromFailOpen, headgate.FromFailClosed, headgate.FromFailLocal:
	default:
		return
	}
	if len(e.Policies) == 1 && e.Policies[0].Name == probePolicy {
		return // no caller's
	}
	now, next := time.Now().UnixNano(), u.next.Load()
	//mutant:undecided-lines-bounded
	if now < next || !u.next.CompareAndSwap(next, now+int64(undecidedEvery)) {
		return
	}
	u.log.Warn("no store decided a call", "source", e.Decision.Source.String(), "error", e.Decision.Err)
}
