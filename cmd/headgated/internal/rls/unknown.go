package rls

import (
	"github.com/headgate-go/headgate/cmd/headgated/internal/unknown"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// reportUnknown reports the fields of a request that this server does not have.
func (s *Service) reportUnknown(req *rls.RateLimitRequest) {
	//mutant:unknown-fields
	if hasUnknown(req) {
		unknown.All(req.ProtoReflect(), s.opts.Observer.UnknownField)
	}
}

// hasUnknown looks at each message that a request may hold, by name: a walk by reflection
// allocates. A test puts a field into each.
func hasUnknown(req *rls.RateLimitRequest) bool {
	has := unknown.Has(req)
	for _, d := range req.GetDescriptors() {
		if d == nil {
			continue
		}
		has = has || unknown.Has(d)
		for _, e := range d.GetEntries() {
			has = has || e != nil && unknown.Has(e)
		}
		if h := d.GetHitsAddend(); h != nil {
			has = has || unknown.Has(h)
		}
		if l := d.GetLimit(); l != nil {
			f := l.GetUnitMultiplier()
			has = has || unknown.Has(l) || f != nil && unknown.Has(f)
		}
	}
	return has
}
