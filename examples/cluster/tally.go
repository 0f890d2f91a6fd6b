package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
)

// tally counts what its observer receives. The observer runs on the path of the
// calls, so printing is done elsewhere.
type tally struct {
	begin time.Time
	mu    struct {
		sync.Mutex
		now, all counts
		changes  []backend.Change
		err      error // the last call's that got no answer
	}
}

// counts are of one second, or of the whole run.
type counts struct {
	by      [headgate.FromNone + 1]int // decisions, by their source
	errors  int
	longest time.Duration
}

func newTally() *tally { return &tally{begin: time.Now()} }

// observe is the limiters' observer.
func (t *tally) observe(e headgate.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case e.Type == headgate.EventCircuit:
		t.mu.changes = append(t.mu.changes, e.Circuit)
	case e.Type == headgate.EventDecision && e.Err == nil:
		for _, c := range []*counts{&t.mu.now, &t.mu.all} {
			c.by[e.Decision.Source]++
			c.longest = max(c.longest, e.Duration)
		}
	}
}

// failed notes a call that got an error for an answer.
func (t *tally) failed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.now.errors++
	t.mu.all.errors++
	t.mu.err = err
}

// line prints what came since the last one, and the circuits.
func (t *tally) line(w io.Writer, circuits map[string]string) {
	t.mu.Lock()
	now, changes := t.mu.now, t.mu.changes
	t.mu.now, t.mu.changes = counts{}, nil
	t.mu.Unlock()
	for _, c := range changes {
		fmt.Fprintf(w, "       circuit of %s: %s to %s\n", c.Node, c.From, c.To)
	}
	fmt.Fprintf(w, "%5.1fs %v  [%s]\n", time.Since(t.begin).Seconds(), now, states(circuits))
}

// summary prints all of it, and says what must not have been.
func (t *tally) summary(w io.Writer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(w, "total  %v  in %.1fs\n", t.mu.all, time.Since(t.begin).Seconds())
	switch {
	case t.mu.all.errors > 0:
		return fmt.Errorf("%d calls got no answer, the last one: %w", t.mu.all.errors, t.mu.err)
	case t.mu.all.by[headgate.FromStore] == 0:
		return errors.New("the store decided nothing: is there a cluster?")
	}
	return nil
}

// String names every source.
func (c counts) String() string {
	var b strings.Builder
	for source, n := range c.by {
		fmt.Fprintf(&b, "%v %d  ", headgate.Source(source), n)
	}
	fmt.Fprintf(&b, "errors %d  longest %v", c.errors, c.longest.Round(100*time.Microsecond))
	return b.String()
}

// states words the circuits, in the order of their nodes.
func states(circuits map[string]string) string {
	var words []string
	for _, node := range slices.Sorted(maps.Keys(circuits)) {
		words = append(words, node+" "+circuits[node])
	}
	return strings.Join(words, ", ")
}
