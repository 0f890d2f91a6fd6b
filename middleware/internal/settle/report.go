package settle

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/internal/adapter"
	"github.com/headgate-go/headgate/internal/listed"
	"github.com/headgate-go/headgate/middleware/internal/parts"
)

type contextKey struct{}

// reports is what a handler has reported of its call.
type reports struct {
	mu struct {
		sync.Mutex
		used   []int64
		status int
	}
}

// Report notes what the call of the context has used: units, one per policy. The last
// report stands.
func Report(ctx context.Context, used ...int64) {
	if c, ok := ctx.Value(contextKey{}).(*Call); ok {
		c.reports.mu.Lock()
		defer c.reports.mu.Unlock()
		c.reports.mu.used = slices.Clone(used)
	}
}

// Reserved returns the reservations of the context's call, nil if it has none.
func Reserved(ctx context.Context) headgate.Reservations {
	c, ok := ctx.Value(contextKey{}).(*Call)
	if !ok {
		return nil
	}
	return slices.Clone(c.reservations[c.from:][:len(c.Parts)])
}

// ReportPolicy notes what the call has used of each policy of that name. The others
// keep what was reported before, or the estimate.
func ReportPolicy(ctx context.Context, policy string, used int64) {
	c, ok := ctx.Value(contextKey{}).(*Call)
	if !ok || !c.Has(policy) {
		return
	}
	c.reports.mu.Lock()
	defer c.reports.mu.Unlock()
	if len(c.reports.mu.used) != len(c.Estimate) {
		c.reports.mu.used = c.Estimate
	}
	c.reports.mu.used = With(c.reports.mu.used, c.Policies(), policy, used)
}

// Has reports whether the call has a policy of that name. The Logger of the first part's
// limiter gets the error of a name that neither the call has nor the policy file of its
// limiters. The nil Call, that of an Outcome made by a test, has no limiter.
func (c *Call) Has(policy string) bool {
	if c == nil || slices.Contains(c.Policies(), policy) {
		return true
	}
	//mutant:policy-of-the-file
	if parts.InFile(c.Parts, policy) {
		return false
	}
	c.warn(unknownPolicy, &headgate.InvalidError{What: "policy", Value: policy, Want: "one of " + strings.Join(c.Policies(), ", ")})
	return false
}

// warning is a line about units that are not settled as they were reported.
type warning string

const (
	unknownPolicy  warning = "headgate: units are reported for a policy that the request does not have, so its estimates stay"
	lostSettlement warning = "headgate: a settlement failed, so the request is charged by its estimate, or by nothing if the server has lost the lease"
	wrongUnits     warning = "headgate: the units that were used do not fit the policies, so the estimates stay"
)

// warn logs by the first part's limiter, and each line once: a plan may lack a policy on
// purpose.
func (c *Call) warn(line warning, err error) {
	l := c.Parts[0].Limiter
	once := adapter.Of(l).Value(line, func() any { return new(sync.Once) }).(*sync.Once)
	//mutant:unknown-policy-once
	once.Do(func() { adapter.Of(l).Logger().Warn(string(line), "error", err) })
}

// With returns a copy of units, with n for each policy of that name.
func With(units []int64, policies []string, name string, n int64) []int64 {
	units, _ = listed.Units(policies, units, map[string]int64{name: n}) // Has reports a name that is not listed
	return units
}

// Reported returns what was reported; nil is nothing.
func (c *Call) Reported() []int64 {
	c.reports.mu.Lock()
	defer c.reports.mu.Unlock()
	return c.reports.mu.used
}

// ReportStatus notes the status of a response that is written past the middleware.
func ReportStatus(ctx context.Context, status int) {
	if c, ok := ctx.Value(contextKey{}).(*Call); ok {
		c.reports.mu.Lock()
		defer c.reports.mu.Unlock()
		c.reports.mu.status = status
	}
}

// Status returns what ReportStatus noted; 0 is nothing.
func (c *Call) Status() int {
	c.reports.mu.Lock()
	defer c.reports.mu.Unlock()
	return c.reports.mu.status
}
