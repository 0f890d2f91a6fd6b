package statuspage

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
)

// A chart is chartWidth by chartHeight units of its viewBox, two units per step.
const (
	chartWidth  = 2 * steps
	chartHeight = 40
)

// Area is a part of a chart: calls of one kind, on top of those of the kinds before.
type Area struct {
	Kind string // the class of its path
	Path string
}

// Areas returns the chart's areas. The highest step fills its height.
func (l *LimitStatus) Areas() []Area {
	lower, top := make([]int64, len(l.Series.Counts)), max(1, l.Top())
	var all []Area
	for _, kind := range []struct {
		name string
		of   func(c *Counts) int64
	}{
		{"passed", func(c *Counts) int64 { return c.Passed }},
		{"denied", func(c *Counts) int64 { return c.Denied }},
		{"undecided", func(c *Counts) int64 { return c.Undecided }},
	} {
		upper, some := make([]int64, len(lower)), false
		for i := range lower {
			n := kind.of(&l.Series.Counts[i])
			upper[i], some = lower[i]+n, some || n > 0
		}
		if some {
			all = append(all, Area{kind.name, area(lower, upper, top)})
		}
		lower = upper
	}
	return all
}

// area returns the path between two lines of steps, which begins at the left end of the lower one.
func area(lower, upper []int64, top int64) string {
	var b strings.Builder
	y := func(n int64) string {
		return strconv.FormatFloat(chartHeight*(1-float64(n)/float64(top)), 'f', 2, 64)
	}
	fmt.Fprintf(&b, "M0 %s", y(lower[0]))
	for i, n := range upper {
		fmt.Fprintf(&b, "V%sH%d", y(n), 2*(i+1))
	}
	for i := len(lower) - 1; i >= 0; i-- {
		fmt.Fprintf(&b, "V%sH%d", y(lower[i]), 2*i)
	}
	return b.String() + "Z"
}

// Top returns the most calls of a step.
func (l *LimitStatus) Top() (most int64) {
	for _, c := range l.Series.Counts {
		most = max(most, c.Passed+c.Denied+c.Undecided)
	}
	return most
}

// TopRate returns the most calls per second of a step.
func (l *LimitStatus) TopRate() float64 { return float64(l.Top()) / l.Series.Step }

var functions = template.FuncMap{
	"number":   number,
	"rate":     rate,
	"duration": func(seconds float64) string { return duration(seconds) },
	"clock":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"int64":    func(n int) int64 { return int64(n) },
	"share64":  func(part, of int64) float64 { return 100 * float64(part) / float64(max(1, of)) },
	"share":    func(part, of int) float64 { return 100 * float64(part) / float64(max(1, of)) },
}

// number returns a number with a space between each three digits.
func number(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// rate returns calls per second with three digits or more.
func rate(r float64) string {
	switch {
	case r == 0:
		return "0"
	case r < 0.01:
		return "<0.01"
	case r < 10:
		return strconv.FormatFloat(r, 'f', 2, 64)
	case r < 100:
		return strconv.FormatFloat(r, 'f', 1, 64)
	}
	return number(int64(r + 0.5))
}

func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Millisecond {
		return d.Round(time.Microsecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}
