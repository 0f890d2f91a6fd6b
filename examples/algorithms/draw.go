package main

import (
	"fmt"
	"io"
)

// The picture, in its own units.
const (
	left, right   = 190, 170 // beside the bars
	top, height   = 44, 62   // of a row
	barWidth      = 7
	unit          = 0.55 // the height of a call
	width         = left + hours*barWidth + right
	passedColour  = "#2b6cb0"
	deniedColour  = "#e2c9c5"
	outlineColour = "#999"
)

// draw writes an SVG with a row per algorithm. A bar is an hour: what passed, and
// above it what was denied.
func draw(w io.Writer, rows []row) {
	total := top + height*len(rows) + 30
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, total)
	fmt.Fprintf(w, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, total)
	text(w, left, 20, "start", "The same calls, hour by hour, under a limit of 100 per day")
	swatch(w, left+hours*barWidth-190, passedColour, "passed")
	swatch(w, left+hours*barWidth-100, deniedColour, "denied")
	text(w, left+hours*barWidth+12, 20, "start", "passed, most in 24 hours")
	for i := range rows {
		drawRow(w, &rows[i], top+height*(i+1)-8)
	}
	for d := 0; d <= hours/day; d++ {
		x := left + d*day*barWidth
		fmt.Fprintf(w, `<path d="M%d %d V%d" stroke="%s" stroke-dasharray="3 3"/>`+"\n", x, top-6, total-24, outlineColour)
		text(w, x, total-8, "middle", fmt.Sprintf("day %d, 0:00 UTC", d+1))
	}
	fmt.Fprintln(w, "</svg>")
}

func drawRow(w io.Writer, r *row, base int) {
	text(w, left-12, base-8, "end", r.name)
	for h := range hours {
		x := left + h*barWidth
		passed, denied := unit*float64(r.passed[h]), unit*float64(r.denied[h])
		bar(w, x, float64(base)-passed, passed, passedColour)
		bar(w, x, float64(base)-passed-denied, denied, deniedColour)
	}
	fmt.Fprintf(w, `<path d="M%d %d h%d" stroke="%s"/>`+"\n", left, base, hours*barWidth, outlineColour)
	text(w, left+hours*barWidth+12, base-8, "start", fmt.Sprintf("%d, %d", r.total, r.densest))
}

func bar(w io.Writer, x int, y, height float64, colour string) {
	if height > 0 {
		fmt.Fprintf(w, `<rect x="%d" y="%.1f" width="%d" height="%.1f" fill="%s"/>`+"\n", x, y, barWidth-1, height, colour)
	}
}

func swatch(w io.Writer, x int, colour, what string) {
	fmt.Fprintf(w, `<rect x="%d" y="11" width="10" height="10" fill="%s"/>`+"\n", x, colour)
	text(w, x+15, 20, "start", what)
}

func text(w io.Writer, x, y int, anchor, s string) {
	fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", x, y, anchor, s)
}
