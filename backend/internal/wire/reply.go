package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// errMalformed is a reply that the script can't have made.
var errMalformed = errors.New("malformed reply")

// reader takes a reply apart. The first thing missing spoils it for good.
type reader struct {
	rest string
	err  error
}

func (r *reader) take(n int) string {
	if n > len(r.rest) {
		r.err, r.rest = errMalformed, ""
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

func (r *reader) byte() byte {
	if s := r.take(1); s != "" {
		return s[0]
	}
	return 0
}

// refusal reads the byte that stands for a group of which nothing was decided,
// and returns 0 where there is none.
func (r *reader) refusal() byte {
	if r.rest != "" && r.rest[0] >= versions {
		return r.byte()
	}
	return 0
}

// line reads text up to a newline.
func (r *reader) line() string {
	s, rest, ok := strings.Cut(r.rest, "\n")
	if !ok {
		r.err = errMalformed
	}
	r.rest = rest
	return s
}

// decimal reads a number of at most 17 digits and the space behind it.
func (r *reader) decimal() int64 {
	n := int64(0)
	for i := 0; i < len(r.rest) && i < 18; i++ {
		switch c := r.rest[i]; {
		case '0' <= c && c <= '9':
			n = 10*n + int64(c-'0')
		case i == 0:
			r.err = errMalformed
			return 0
		case c == ' ':
			r.rest = r.rest[i+1:]
			return n
		default:
			r.rest = r.rest[i:]
			return n
		}
	}
	r.err = errMalformed
	return 0
}

// whole reads a double that holds a whole number, 0 to 2^53.
func (r *reader) whole() int64 {
	s := r.take(8)
	if s == "" {
		return 0
	}
	return r.from(s)
}

func (r *reader) from(s string) int64 {
	f := math.Float64frombits(binary.LittleEndian.Uint64([]byte(s)))
	if f != math.Trunc(f) || f < 0 || f > 1<<53 { // mutant: impossible-number
		r.err = errMalformed
		return 0
	}
	return int64(f)
}

// What stands in a reply for a group of which nothing was decided.
const (
	refused = 'R'
	corrupt = 'C'
	failed  = 'E' // and a line: which command failed, and why
)

// versions is above what a stored value's version can be.
const versions = ' '

// version reads the byte that a stored value begins with, 0 where there is
// none.
func (r *reader) version() byte {
	v := r.byte()
	if v >= versions {
		r.err = errMalformed
	}
	return v
}

// answer reads a reply into the takes of the groups that it is to. An error
// means that it is no answer at all: what it is to is perhaps counted.
func answer(reply string, groups []*Group, p Prefix) error {
	r := &reader{rest: reply}
	now := r.decimal()*1_000_000 + r.decimal()
	for _, g := range groups {
		switch r.refusal() {
		case 0:
			g.replay(r, now)
		case failed:
			g.refuse(fmt.Errorf("%w: %s", backend.ErrUnavailable, r.line()))
		case corrupt:
			g.refuse(&backend.CorruptError{Key: g.Key, Stored: g.stored(p)})
		case refused:
			g.refuse(&backend.InvalidError{What: "request", Value: g.Op, Want: "numbers that the script takes"})
		default:
			r.err = errMalformed
		}
	}
	if r.err == nil && r.rest != "" {
		r.err = errMalformed
	}
	return r.err
}

// few is how many policies a replay has room for without allocating.
const few = 4

// replay decides the takes again from what they met, with the functions that
// the memory store runs: the script has decided the same.
func (g *Group) replay(r *reader, now int64) {
	if g.Op == backend.Reset && len(g.sent) > 0 {
		r.version()
		for _, t := range g.sent {
			t.meet(now, make([]backend.Reading, len(g.Policies)))
		}
		return
	}
	takes := g.sent
	if len(takes) == 0 {
		takes = nobody
	}
	var views [few]algo.View
	var readings [few]backend.Reading
	vs, rs := views[:], readings[:]
	if len(g.Policies) > few {
		vs, rs = make([]algo.View, len(g.Policies)), make([]backend.Reading, len(g.Policies))
	}
	vs, rs = vs[:len(g.Policies)], rs[:len(g.Policies)]
	for i := range vs {
		vs[i] = r.view(&g.Policies[i].Algorithm, now)
	}
	for len(takes) > 0 && r.err == nil {
		n := run(takes)
		g.replayRun(r, takes[:n], vs, rs, now)
		takes = takes[n:]
	}
}

// replayRun decides takes of equal costs: some pass, then the rest are
// denied, all meeting the same.
func (g *Group) replayRun(r *reader, takes []*Take, views []algo.View, readings []backend.Reading, now int64) {
	denied := false
	for _, t := range takes {
		fits := g.fits(t, views)
		if !fits && !denied {
			g.retries(r, t, views, readings)
			denied = true
		}
		for p := range views {
			a := &g.Policies[p].Algorithm
			if fits && g.Op == backend.Take {
				a.Add(&views[p], t.costOf(p))
			}
			readings[p].At, readings[p].Used, readings[p].ResetAt = views[p].At, views[p].Used, a.ResetAt(&views[p])
			if fits {
				readings[p].RetryAt = 0
			}
		}
		t.meet(now, readings)
	}
}

// meet notes what the take met.
func (t *Take) meet(now int64, readings []backend.Reading) {
	if t == nobody[0] {
		return
	}
	t.now, t.readings = now, append(t.readings[:0], readings...)
}

func (g *Group) fits(t *Take, views []algo.View) bool {
	for p := range views {
		if !g.Policies[p].Algorithm.Fits(&views[p], t.costOf(p)) {
			return false
		}
	}
	return true
}

// retries reads, or works out, when each policy will have room.
func (g *Group) retries(r *reader, t *Take, views []algo.View, readings []backend.Reading) {
	for p := range views {
		a, n := &g.Policies[p].Algorithm, t.costOf(p)
		switch {
		case a.Fits(&views[p], n):
			readings[p].RetryAt = 0
		case many(a):
			readings[p].RetryAt = r.whole()
		default:
			readings[p].RetryAt = a.RetryAt(nil, &views[p], n)
		}
	}
}

// many reports whether a kind keeps too much to send: the script answers
// with what it amounts to.
func many(a *algo.Algorithm) bool { return a.Kind().Storage() != algo.StoredWords }

func (r *reader) view(a *algo.Algorithm, now int64) algo.View {
	if many(a) {
		r.version()
		used, newest := r.whole(), r.whole()
		return a.Seen(used, newest, now)
	}
	var words [3]int64
	if r.version() != 0 {
		r.take(8) // the horizon: the script's own
		for i := range words[:a.Words()] {
			words[i] = r.whole()
		}
	}
	return a.ViewOf(words, now)
}
