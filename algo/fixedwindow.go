package algo

// FixedWindow counts in the clock-aligned window floor(now / period) and
// lets a call pass if the count has room. Two windows meet at a boundary, so
// a trailing window can hold twice the limit.
//
// Kept: the window's start and its count.
func FixedWindow(l Limit) Algorithm {
	return window(KindFixedWindow, l)
}

// In a fixed View x is the window's start, y its count.

func (a *Algorithm) fixedView(v *View, w []int64, now int64) {
	start, count := w[0], w[1]
	if start > now+a.period {
		start, count = 0, 0
	}
	at := now
	if start > now {
		at = max(now, start-start%a.period) // another period may have aligned it otherwise
	}
	window := at - at%a.period
	if start < window {
		count = 0
	}
	v.Used, v.At, v.x, v.y, v.z = count, at, window, count, 0
}

// window makes an algorithm that needs no numbers beside its limit.
func window(k Kind, l Limit) Algorithm {
	p := l.Period.Microseconds()
	return checked(Algorithm{kind: k, limit: l, max: l.Events, period: p, fill: p})
}
