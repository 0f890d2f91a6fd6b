package shard_test

import (
	"fmt"
	"strings"

	"github.com/headgate-go/headgate/algo"
)

// The picture: on the left commands per decision by load, one line per algorithm;
// on the right what the nodes spend on one key, plain and spread.
const (
	width, height = 960, 380
	plotX, plotY  = 60, 50
	plotW, plotH  = 420, 260
	barsX         = 590
)

var colours = []string{"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd"}

type canvas struct{ strings.Builder }

func (c *canvas) put(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

func (c *canvas) text(x, y float64, anchor, s string) {
	c.put(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, s)
}

func (r *report) svg() string {
	c := &canvas{}
	c.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`, width, height)
	c.put(`<rect width="%d" height="%d" fill="white"/>`, width, height)
	r.lines(c)
	r.bars(c)
	c.put(`</svg>`)
	return c.String()
}

// lines draws commands per decision at K = 16.
func (r *report) lines(c *canvas) {
	top := 1.0
	for i := range r.matrix {
		if r.matrix[i].K == 16 {
			top = max(top, r.matrix[i].commands())
		}
	}
	top *= 1.1
	x := func(i int) float64 { return plotX + plotW*float64(i)/float64(len(loads)-1) }
	y := func(v float64) float64 { return plotY + plotH*(1-v/top) }
	c.text(plotX, 25, "start", "Commands per decision by load, K = 16, eight processes, merging and deny cache off")
	for v := 0.0; v <= top; v += 0.25 {
		c.put(`<path d="M%d %.1f h%d" stroke="#ddd"/>`, plotX, y(v), plotW)
		c.text(plotX-8, y(v)+4, "end", fmt.Sprintf("%.2f", v))
	}
	for i, load := range loads {
		c.text(x(i), plotY+plotH+18, "middle", fmt.Sprint(load, " %"))
	}
	for kind := range kinds(algo.PerDay(1)) {
		var points []string
		for i, load := range loads {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(i), y(r.find(r.matrix, kind, 16, load).commands())))
		}
		c.put(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, strings.Join(points, " "), colours[kind])
		at := float64(plotX + kind*126) // room for the longest name
		c.put(`<rect x="%.1f" y="%d" width="10" height="10" fill="%s"/>`, at, height-24, colours[kind])
		c.text(at+14, height-15, "start", kindName(r.find(r.matrix, kind, 16, 50)))
	}
}

// bars draws each node's server time per decision, stacked.
func (r *report) bars(c *canvas) {
	top := 0.0
	for i := range r.cost {
		all, _ := r.time(i)
		top = max(top, all*1.25)
	}
	c.text(barsX, 25, "start", "Server time, µs per decision, by node")
	for i := range r.cost {
		at, floor := float64(barsX+i*92), float64(plotY+plotH)
		for n := range r.cost[i][0].nodes {
			h := median(r.cost[i], func(m timing) float64 { return m.nodes[n] }) / top * plotH
			floor -= h
			c.put(`<rect x="%.1f" y="%.1f" width="70" height="%.1f" fill="%s" stroke="white"/>`, at, floor, h, colours[n%3])
		}
		all, busy := r.time(i)
		c.text(at+35, floor-20, "middle", fmt.Sprintf("%.1f in all", all))
		c.text(at+35, floor-6, "middle", fmt.Sprintf("busiest %.1f", busy))
		c.text(at+35, plotY+plotH+18, "middle", subjects[i].what())
	}
}
