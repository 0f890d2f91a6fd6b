package main

import (
	"fmt"
	"io"
	"strings"
)

// palette wraps what is drawn in a terminal's colours, or in nothing.
type palette struct{ good, bad, dim, end string }

var (
	plain    = palette{}
	coloured = palette{good: "\x1b[32m", bad: "\x1b[31m", dim: "\x1b[2m", end: "\x1b[0m"}
)

func (r *row) name() string { return r.policy.Name }

func (r *row) admitted() int { return r.in(0) + r.in(1) }

// in returns how many calls of a burst passed.
func (r *row) in(burst int) (n int) {
	for _, ok := range r.passed[burst] {
		if ok {
			n++
		}
	}
	return n
}

// worst is what the algorithm states of itself: the most that any trailing
// window can hold.
func (r *row) worst() int { return int(r.policy.Algorithm.Worst(window)) }

// broken is the example's own test: CI runs it, and a wrong picture would be in
// the README.
func (r *row) broken() bool {
	return r.admitted() > r.worst() || r.expect > 0 && r.admitted() != r.expect
}

func (r *row) verdict() string {
	over := r.admitted() - limit
	switch {
	case r.admitted() > r.worst():
		return "BROKEN: above its worst"
	case r.broken():
		return fmt.Sprintf("BROKEN: its rule says %d", r.expect)
	case over > 0:
		return fmt.Sprintf("%d over the limit, as it states", over)
	}
	return "holds the limit"
}

func (r *row) colour(p palette) string {
	if r.admitted() > limit {
		return p.bad
	}
	return p.good
}

// table compares what passed with what each algorithm states as its worst case.
func table(w io.Writer, rows []*row, p palette) {
	fmt.Fprintf(w, "%-15s %8s %13s   %s\n", "algorithm", "admitted", "stated worst", "verdict")
	for _, r := range rows {
		fmt.Fprintf(w, "%-15s %8d %13d   %s%s%s\n", r.name(), r.admitted(), r.worst(), r.colour(p), r.verdict(), p.end)
	}
}

// half is how many columns a burst takes: two calls a column.
const half = (calls + 1) / 2

// chart draws each algorithm's calls in their order: a full block where two
// calls passed, half a one for one, a dot where none did.
func chart(w io.Writer, rows []*row, p palette) {
	fmt.Fprintf(w, "%-15s    %-*s │ %*s\n", "", half, "-"+distance.String(), half, "+"+distance.String())
	for _, r := range rows {
		fmt.Fprintf(w, "%-15s %2d %s │ %s %2d\n", r.name(), r.in(0), bar(r.passed[0], p.good, p), bar(r.passed[1], r.colour(p), p), r.in(1))
	}
	fmt.Fprintf(w, "%-15s    %*s\n", "", half+2+len("boundary")/2, "boundary")
	fmt.Fprintf(w, "each sign is two calls: █ both passed  ▌ one passed  · none passed\n")
}

// bar draws the calls of one burst, what passed in colour.
func bar(passed []bool, colour string, p palette) string {
	var b strings.Builder
	last := ""
	for i := 0; i < len(passed); i += 2 {
		block, c := cell(passed[i:min(i+2, len(passed))]), colour
		if block == "·" {
			c = p.dim
		}
		if c != last {
			b.WriteString(c)
			last = c
		}
		b.WriteString(block)
	}
	b.WriteString(p.end)
	return b.String()
}

// cell draws two calls.
func cell(pair []bool) string {
	n := 0
	for _, ok := range pair {
		if ok {
			n++
		}
	}
	return [...]string{"·", "▌", "█"}[n]
}
