package main

import (
	"crypto/sha256"
	"fmt"
	"time"
)

// A control plane sends what was refused again at once. So a content is refused at once when it
// comes for the first time, and after a pause when it comes again. The pause runs from the
// last refusal, whatever comes meanwhile. It doubles with each refusal, until resources are used.
const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
	maxRefused = 8 // contents that are refused at once; one more waits as those that come again
)

// refusals are what was refused since resources were used.
type refusals struct {
	seen  map[digest]error
	pause time.Duration // of the last refusal
	next  time.Time     // when a content that comes again may be refused
}

// digest is that of a content, whatever the order of its resources, and of the maps in them.
type digest [sha256.Size]byte

func (r reading) sum() (sum digest) {
	h := sha256.New()
	fmt.Fprintf(h, "%v\n", r.err)
	for _, f := range r.files {
		fmt.Fprintf(h, "%q %d\n", f.Name, len(f.Data))
		h.Write(f.Data)
	}
	h.Sum(sum[:0])
	return sum
}

// wait returns how long a refusal waits, and notes its content.
func (r *refusals) wait(sum digest, err error) time.Duration {
	_, again := r.seen[sum]
	//mutant:refused-at-once-bounded
	if !again && len(r.seen) < maxRefused {
		if r.seen == nil {
			r.seen = map[digest]error{}
		}
		r.seen[sum] = err
		return 0
	}
	return time.Until(r.next)
}

// sent notes that an answer was sent.
func (r *refusals) sent(refusal bool) {
	if refusal {
		//mutant:refused-again-after-a-pause
		r.pause = min(max(2*r.pause, firstPause), maxPause)
		r.next = time.Now().Add(r.pause)
	}
}
