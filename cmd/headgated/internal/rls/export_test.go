package rls

import rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

// ReportUnknown is what each request does first.
func (s *Service) ReportUnknown(req *rls.RateLimitRequest) { s.reportUnknown(req) }
