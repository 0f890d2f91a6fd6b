package settle

import (
	"sync"
	"time"
)

// lines are the keys whose calls wait for each other. A call that is denied while
// other calls of its key in this process are not settled may pass once they are. The
// first that waits asks again after each settlement; the others wait for their turn.
type lines struct {
	mu struct {
		sync.Mutex
		keys map[string]*line // those with calls that are open or wait
	}
}

// line is one key's. Its numbers are guarded by the lock of lines.
type line struct {
	open    int           // calls that ask now, or that passed and are not settled
	waiting int           // calls that wait, the one that has the turn too
	turn    chan struct{} // full while a call has the turn
	changed chan struct{} // full where an open call has ended since the last look
}

// ask decides an answer, and waits where that may help. It returns the line where the
// call passed: it is open there until settled.
func (s *lines) ask(a *answer, wait time.Duration) *line {
	l, others, waits := s.enter(a.key())
	if !waits {
		a.ask()
		waits = s.asked(l, a, others)
	}
	if waits {
		s.wait(l, a, wait)
		s.leave(l, a.key())
	}
	if !a.passed() {
		return nil
	}
	return l
}

// enter returns the line of a key. The call waits behind others, or is open and asks at
// once, beside so many others.
func (s *lines) enter(key string) (l *line, others int, waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l = s.mu.keys[key]; l == nil {
		l = &line{turn: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
		if s.mu.keys == nil {
			s.mu.keys = map[string]*line{}
		}
		s.mu.keys[key] = l
	}
	if l.waiting > 0 {
		l.waiting++
		return l, 0, true
	}
	l.open++
	return l, l.open - 1, false
}

// asked ends the first attempt of a call, beside so many others as it began. It reports
// whether the call is to wait.
func (s *lines) asked(l *line, a *answer, others int) (waits bool) {
	if a.passed() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.open--
	l.change()
	if waits = !a.final() && others+l.open > 0; waits {
		l.waiting++
	}
	s.drop(l, a.key())
	return waits
}

// wait waits for the turn, and asks until the call passes, no other is open or the time
// is over. A call that never had the turn asks once.
func (s *lines) wait(l *line, a *answer, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	over := false
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-timer.C:
		over = true
	case <-a.ctx.Done():
		over = true
	}
	for !s.again(l, a) && !over {
		select {
		case <-l.changed:
		case <-timer.C:
			return
		case <-a.ctx.Done():
			return
		}
	}
}

// again asks for a call that waits, and reports whether the answer stands. Others that
// were open before or after may have taken what the call needs, and may give it back.
func (s *lines) again(l *line, a *answer) (stands bool) {
	s.mu.Lock()
	others := l.open
	l.open++
	s.mu.Unlock()
	a.ask()
	if a.passed() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.open-- // no notice: the call itself is the one that would look
	return a.final() || others+l.open == 0
}

// leave ends the wait of a call.
func (s *lines) leave(l *line, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.waiting--
	s.drop(l, key)
}

// settled ends a call that passed.
func (s *lines) settled(key string, l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.open--
	l.change()
	s.drop(l, key)
}

// drop forgets an unused line; the lock is held.
func (s *lines) drop(l *line, key string) {
	if l.open+l.waiting == 0 {
		delete(s.mu.keys, key)
	}
}

func (l *line) change() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}
