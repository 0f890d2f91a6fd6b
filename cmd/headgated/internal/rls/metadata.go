package rls

import (
	"maps"

	"google.golang.org/protobuf/types/known/structpb"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// metadata returns the dynamic metadata of an answer. It has the request's domain,
// descriptors and hits, the quotas that are over, and the metadata of the limits that
// passed.
func (c *call) metadata() *structpb.Struct {
	fields := map[string]*structpb.Value{"domain": structpb.NewStringValue(c.req.GetDomain())}
	descriptors := &structpb.ListValue{}
	for _, d := range c.req.GetDescriptors() {
		if d != nil {
			descriptors.Values = append(descriptors.Values, structpb.NewStructValue(describe(d)))
		}
	}
	fields["descriptors"] = structpb.NewListValue(descriptors)
	if h := c.req.GetHitsAddend(); h != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(h))
	}
	over, quota, merged := &structpb.ListValue{}, false, map[string]*structpb.Value{}
	for i := range c.descriptors {
		d := &c.descriptors[i]
		if d.part < 0 {
			continue
		}
		p, isQuota := &c.parts[d.part], d.match.Rule.Quota
		quota = quota || isQuota
		if isQuota && p.over {
			over.Values = append(over.Values, structpb.NewNumberValue(float64(i)))
		}
		if m := d.match.Rule.Metadata; m != nil && !p.over {
			maps.Copy(merged, m.GetFields())
		}
	}
	if len(over.Values) > 0 {
		fields["quotaModeViolations"] = structpb.NewListValue(over)
	}
	fields["quotaModeEnabled"] = structpb.NewBoolValue(quota)
	if len(merged) > 0 {
		fields["metadata"] = structpb.NewStructValue(&structpb.Struct{Fields: merged})
	}
	return &structpb.Struct{Fields: fields}
}

func describe(d *common.RateLimitDescriptor) *structpb.Struct {
	entries := &structpb.ListValue{}
	for _, e := range d.GetEntries() {
		entries.Values = append(entries.Values, structpb.NewStringValue(e.GetKey()+"="+e.GetValue()))
	}
	fields := map[string]*structpb.Value{"entries": structpb.NewListValue(entries)}
	if l := d.GetLimit(); l != nil {
		fields["limit"] = structpb.NewStringValue(l.String())
	}
	if h := d.GetHitsAddend(); h != nil {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(h.GetValue()))
	}
	return &structpb.Struct{Fields: fields}
}
