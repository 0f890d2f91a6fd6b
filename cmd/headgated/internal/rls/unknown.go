package rls

import (
	"github.com/headgate-go/headgate/cmd/headgated/internal/unknown"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// reportUnknown reports the fields of a request that this server does not have. It names each
// message that a request may hold, since a walk by reflection allocates; a test compares
// the two.
func reportUnknown(req *rls.RateLimitRequest, report unknown.Report) {
	unknown.Own(req, report)
	for _, d := range req.GetDescriptors() {
		if d == nil {
			continue
		}
		unknown.Own(d, report)
		for _, e := range d.GetEntries() {
			if e != nil {
				unknown.Own(e, report)
			}
		}
		if h := d.GetHitsAddend(); h != nil {
			unknown.Own(h, report)
		}
		if l := d.GetLimit(); l != nil {
			unknown.Own(l, report)
			if f := l.GetUnitMultiplier(); f != nil {
				unknown.Own(f, report)
			}
		}
	}
}
