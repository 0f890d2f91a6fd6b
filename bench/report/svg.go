package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// The measures of a picture, in pixels.
const (
	width  = 860
	left   = 190 // where bars begin
	right  = 110 // room for a figure after the longest bar
	bar    = 16
	gap    = 4
	header = 44
)

// Charts are the pictures' names.
func (r *Report) Charts() []string {
	var all []string
	for _, s := range r.Sections() {
		all = append(all, s.Charts...)
	}
	return all
}

// SVG draws the medians of one chart: a group of bars for each table, each
// group to a scale of its own, since a hot key's bars would flatten all others.
func (r *Report) SVG(w io.Writer, chart string) error {
	var tables []*Table
	height := header
	for _, t := range r.Tables {
		if t.Chart == chart {
			tables = append(tables, t)
			height += 34 + len(t.Rows)*(bar+gap)
		}
	}
	d := &drawing{}
	d.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12">`, width, height+10, width, height+10)
	d.put(`<rect width="100%%" height="100%%" fill="#ffffff"/>`)
	if len(tables) > 0 {
		d.put(`<text x="16" y="28" font-size="17" font-weight="bold" fill="#1a1a1a">%s</text>`, escape(tables[0].Place+": "+tables[0].Unit+", medians"))
	}
	y := header
	for _, t := range tables {
		y = d.group(t, y)
	}
	d.put(`</svg>`)
	_, err := io.WriteString(w, d.String())
	return err
}

type drawing struct{ strings.Builder }

func (d *drawing) put(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

// group draws one table's bars from y on and returns where the next begins.
func (d *drawing) group(t *Table, y int) int {
	title := t.Workload
	if t.Lower {
		title += ", " + t.Name + " (less is better)"
	}
	d.put(`<text x="16" y="%d" font-weight="bold" fill="#1a1a1a">%s</text>`, y+18, escape(title))
	y += 26
	longest := 0.0
	for _, r := range t.Rows {
		longest = max(longest, r.Median())
	}
	for _, r := range t.Rows {
		d.bar(r, y, longest)
		y += bar + gap
	}
	return y + 8
}

func (d *drawing) bar(r Row, y int, longest float64) {
	length := 0.0
	if longest > 0 {
		length = r.Median() / longest * (width - left - right)
	}
	d.put(`<text x="%d" y="%d" text-anchor="end" fill="#333333">%s</text>`, left-8, y+bar-4, escape(r.Subject))
	d.put(`<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, left, y, max(length, 1), bar, colour(r))
	d.put(`<text x="%.1f" y="%d" fill="#333333">%s</text>`, left+length+6, y+bar-4, escape(Figure(r.Median())))
}

func colour(r Row) string {
	switch {
	case r.Ours:
		return "#1f6feb"
	case r.Peer:
		return "#8c959f"
	}
	return "#d0d7de"
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
