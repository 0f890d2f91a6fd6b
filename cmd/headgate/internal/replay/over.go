package replay

import (
	"time"

	"github.com/headgate-go/headgate/cmd/headgate/internal/logs"
)

// OverTime are the calls over the time of the log, in slots of one width.
type OverTime struct {
	Start  time.Time `json:"start"` // of the first slot
	Width  int64     `json:"width_us"`
	Calls  []int64   `json:"calls"`
	Denied []int64   `json:"denied"`
	Before []int64   `json:"denied_by_old,omitempty"` // with another policy file
}

// Slot returns the start of the i-th slot.
func (o *OverTime) Slot(i int) time.Time {
	return o.Start.Add(time.Duration(i) * time.Duration(o.Width) * time.Microsecond)
}

// slots bounds the number of slots.
const slots = 300

// widths of slots, in seconds. Each is a multiple of the one before. They double from the last one
// on.
var widths = []int64{1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600}

// over counts calls as they come.
type over struct {
	start, width int64 // µs
	wider        int   // of widths: the next one
	calls        [slots][3]int64
	n            int
}

// add counts a call. The instants never fall.
func (o *over) add(c *logs.Call, denied, before bool) {
	if o.width == 0 {
		o.widen(c.At)
	}
	for (c.At-o.start)/o.width >= slots {
		o.widen(o.start)
	}
	i := int((c.At - o.start) / o.width)
	o.n = max(o.n, i+1)
	slot := &o.calls[i]
	slot[0]++
	if denied {
		slot[1]++
	}
	if before {
		slot[2]++
	}
}

// widen makes the slots wider, and starts them at a multiple of their width.
func (o *over) widen(start int64) {
	was := *o
	o.width *= 2
	if o.wider < len(widths) {
		o.width = widths[o.wider] * time.Second.Microseconds()
		o.wider++
	}
	o.start, o.calls, o.n = start-start%o.width, [slots][3]int64{}, 0
	for i := range was.n {
		at := int((was.start + int64(i)*was.width - o.start) / o.width)
		for j, n := range was.calls[i] {
			o.calls[at][j] += n
		}
		o.n = at + 1
	}
}

// report returns the slots. old is set if there is another policy file.
func (o *over) report(old bool) *OverTime {
	r := &OverTime{Start: time.UnixMicro(o.start).UTC(), Width: o.width, Calls: []int64{}, Denied: []int64{}}
	for _, slot := range o.calls[:o.n] {
		r.Calls, r.Denied = append(r.Calls, slot[0]), append(r.Denied, slot[1])
		if old {
			r.Before = append(r.Before, slot[2])
		}
	}
	return r
}
