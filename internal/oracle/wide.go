package oracle

import (
	"math"
	"math/bits"
)

// wide is a whole number of 128 bits: units times microseconds pass 64.
type wide struct{ hi, lo uint64 }

func product(x, y uint64) wide {
	hi, lo := bits.Mul64(x, y)
	return wide{hi, lo}
}

func (w wide) plus(x wide) wide {
	lo, carry := bits.Add64(w.lo, x.lo, 0)
	hi, _ := bits.Add64(w.hi, x.hi, carry)
	return wide{hi, lo}
}

// less returns w - x, or nothing where x is larger.
func (w wide) less(x wide) wide {
	lo, borrow := bits.Sub64(w.lo, x.lo, 0)
	hi, borrow := bits.Sub64(w.hi, x.hi, borrow)
	if borrow != 0 {
		return wide{}
	}
	return wide{hi, lo}
}

func (w wide) above(x wide) bool { return w.hi > x.hi || w.hi == x.hi && w.lo > x.lo }

// over returns floor(w / x), or the largest int64 where that is larger.
func (w wide) over(x uint64) int64 {
	if w.hi >= x {
		return math.MaxInt64
	}
	q, _ := bits.Div64(w.hi, w.lo, x)
	return int64(min(q, math.MaxInt64))
}
