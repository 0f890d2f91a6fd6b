package storetest

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// fiveReserves reserves 40 of 100 five times at one instant. Two pass, and are settled
// by 25 and 90: 115 are used, and a cost of 1 is denied until enough of them has
// aged.
func fiveReserves(p *probe) {
	p.needsOps(backend.Reserve, backend.Settle)
	p.needsClock()
	for i := range p.shape.kinds {
		list := p.carried(p.policy("api", i, algo.PerMinute(100)))
		p.set(began + int64(i)*time.Hour.Microseconds())
		key, passed := fmt.Sprint("k", i), []*reservation(nil)
		for range 5 {
			r := p.lease(group(key, list, 40))
			d, err := r.send(backend.Reserve)
			p.must(err == nil, "a Reserve: %v", err)
			if d.Allowed {
				passed = append(passed, r)
			}
		}
		p.must(len(passed) == 2, "of five Reserves of 40 of 100 %d passed", len(passed))
		passed[0].settles(25)
		passed[1].settles(90)
		p.used(key, list, 115)
		d := p.denied(key, list, 1)
		p.must(d.Used == 115 && d.Remaining == 0, "115 of 100 are used, and a denial said %+v", d.State)
		p.advance(d.RetryAfter - tick)
		p.denied(key, list, 1)
		p.advance(tick)
		p.passes(key, list, 1)
	}
}
