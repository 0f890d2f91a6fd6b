package algo

// FixedWindow counts in the clock-aligned window floor(now / period) and
// lets a call pass if the count has room. Two windows meet at a boundary, so
// a trailing window can hold twice the limit.
//
// Kept: the window's start and its count.
func FixedWindow(l Limit) Algorithm {
	return window(KindFixedWindow, l)
}

var fixedWindow = rule{name: "FixedWindow", storage: StoredWords, letter: 'f'}

// In a fixed View x is the window's start, y its count.

func (a *Algorithm) fixedView(v *View, w []int64, now int64) {
	v.At, v.x, v.y = a.counted(w[0], w[1], now)
	v.Used, v.z = v.y, 0
}

// counted rolls a window and its count forward to now.
func (a *Algorithm) counted(start, count, now int64) (at, window, counts int64) {
	if start > now+a.period {
		start, count = 0, 0
	}
	at = max(now, start)
	window = at - at%a.period
	if start < window {
		count = 0
	}
	return at, window, count
}

// window makes an algorithm that needs no numbers beside its limit.
func window(k Kind, l Limit) Algorithm {
	p := l.Period.Microseconds()
	return checked(Algorithm{kind: k, limit: l, max: l.Events, period: p, fill: p})
}
