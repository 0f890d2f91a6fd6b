package report

import (
	"math"
	"strconv"
	"strings"
)

// Figure writes a number as a person would: three digits, or whole with commas.
// More digits would look exact, and the figures are not. NaN and infinity, as
// the cost of no decisions, are a dash.
func Figure(x float64) string {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return "–"
	}
	switch abs := math.Abs(x); {
	case abs >= 1000:
		return commas(strconv.FormatFloat(x, 'f', 0, 64))
	case abs >= 100 || x == math.Trunc(x):
		return strconv.FormatFloat(x, 'f', 0, 64)
	case abs >= 10:
		return trim(strconv.FormatFloat(x, 'f', 1, 64))
	case abs >= 1:
		return trim(strconv.FormatFloat(x, 'f', 2, 64))
	}
	return trim(strconv.FormatFloat(x, 'f', 3, 64))
}

func trim(s string) string { return strings.TrimRight(strings.TrimRight(s, "0"), ".") }

func commas(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// percent shows 0 as a bare 0, so that a small share that is not zero differs
// from it.
func percent(share float64) string {
	if share == 0 {
		return "0"
	}
	return Figure(100*share) + " %"
}
