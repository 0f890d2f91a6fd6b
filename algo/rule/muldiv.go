package rule

import (
	"math"
	"math/bits"
)

// Whole-number arithmetic that never passes the bound it is for. Package lua
// reaches the same results by long division where a product passes 2^52.

// mulDiv returns floor(x * y / z) exactly, or MaxInt64 where that is larger.
func mulDiv(x, y, z int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(y))
	if hi >= uint64(z) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(z))
	return int64(min(q, math.MaxInt64))
}

// mulDivUp returns ceil(x * y / z) exactly, or MaxInt64 where that is larger.
func mulDivUp(x, y, z int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(y))
	if hi >= uint64(z) {
		return math.MaxInt64
	}
	q, r := bits.Div64(hi, lo, uint64(z))
	if r > 0 {
		q++
	}
	return int64(min(q, math.MaxInt64))
}

func ceilDiv(x, y int64) int64 { return (x + y - 1) / y }

func gcd(x, y int64) int64 {
	for y != 0 {
		x, y = y, x%y
	}
	return x
}

// saturate returns x * y, or MaxInt64 where that is larger.
func saturate(x, y int64) int64 { return mulDiv(x, y, 1) }
