// Package parts has what the middleware of each protocol does with the parts of a call
// before the limiters decide it.
package parts

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/adapter"
	"github.com/headgate-go/headgate/internal/listed"
)

// RequestError is a request that can't be counted because of a value in it. Examples are
// a key that is too long or given several times, or a negative cost. The client can mend
// it.
type RequestError struct {
	What string // the value, such as "key" or "cost"
	Text string // why it is refused; it holds no text of the request
}

// Error returns the reason.
func (e *RequestError) Error() string {
	return "headgate: the request can't be counted: " + e.What + " " + e.Text
}

// Ready returns the parts that are to be decided. If the request does not settle, it leaves
// out each part whose costs are all 0, without writing to the list. An empty list is a
// request without a limit.
func Ready(list []headgate.Part, settles bool) ([]headgate.Part, error) {
	free := 0
	for i := range list {
		c := &list[i].Call
		switch {
		case len(c.Key) > backend.MaxKey:
			return nil, &RequestError{"key", fmt.Sprintf("has more than %d bytes", backend.MaxKey)}
		case c.Key == "":
			return nil, &RequestError{"key", "is empty"}
		case c.Costs == nil:
			continue
		//mutant:negative-cost-refused
		case slices.ContainsFunc(c.Costs, func(n int64) bool { return n < 0 }):
			return nil, &RequestError{"cost", fmt.Sprint("is ", slices.Min(c.Costs))}
		}
		if isFree(c) {
			free++
		}
	}
	//mutant:free-part-is-settled
	if free > 0 && !settles { // or what was used would be charged to nothing
		list = slices.DeleteFunc(slices.Clone(list), func(p headgate.Part) bool { return isFree(&p.Call) })
	}
	return list, checkKeys(list)
}

// checkKeys refuses the lists that headgate.All refuses because of their keys, which the
// request may determine.
func checkKeys(list []headgate.Part) error {
	//mutant:too-many-parts-refused
	if len(list) > backend.MaxKeys {
		return &RequestError{"keys", fmt.Sprintf("are more than %d", backend.MaxKeys)}
	}
	if len(list) > backend.MaxCounts/backend.MaxPolicies { // fewer can't have too many
		counts := 0
		for i := range list {
			counts += len(list[i].Limiter.Policies())
		}
		//mutant:too-many-counts-refused
		if counts > backend.MaxCounts {
			return &RequestError{"keys", fmt.Sprintf("have more than %d counts", backend.MaxCounts)}
		}
	}
	for i := range list {
		for j := range i {
			//mutant:equal-keys-refused
			if policy, twice := Twice(&list[i], &list[j]); twice {
				return &RequestError{"key", "is given twice for policy " + policy}
			}
		}
	}
	return nil
}

// Twice returns the first policy of p whose count q charges too, and whether there is
// one. They have the same store and the same key, and a policy of p and one of q
// have the same name, algorithm and period.
func Twice(p, q *headgate.Part) (policy string, twice bool) {
	if p.Call.Key != q.Call.Key {
		return "", false
	}
	return adapter.Of(p.Limiter).Twice(adapter.Of(q.Limiter))
}

// InFile reports whether the policy file of one of the parts' limiters has a policy of that
// name: a plan may lack it on purpose.
func InFile(list []headgate.Part, policy string) bool {
	return slices.ContainsFunc(list, func(p headgate.Part) bool {
		names := adapter.Of(p.Limiter).Value(listed.Policies{}, func() any { return []string(nil) }).([]string)
		return slices.Contains(names, policy)
	})
}

// isFree reports whether a call costs nothing.
func isFree(c *headgate.Call) bool {
	//mutant:free-call-passes
	return len(c.Costs) > 0 && !slices.ContainsFunc(c.Costs, func(n int64) bool { return n != 0 })
}

// CostText returns the reason of an ErrNeverAdmissible for the client: the cost, the policy
// and the greatest cost that it admits. It is "" if the error does not have them.
func CostText(err error) string {
	var invalid *headgate.InvalidError
	//mutant:text-of-a-cost-only
	if !errors.As(err, &invalid) || invalid.What != "cost" {
		return ""
	}
	return strings.TrimPrefix(invalid.Error(), "headgate: ")
}

// Log logs a request that can't be counted, with further attributes. It uses the Logger of the
// first part that has a limiter, at most once per second. It reports whether a part has one.
func Log(list []headgate.Part, err error, more ...any) bool {
	i := slices.IndexFunc(list, func(p headgate.Part) bool { return len(p.Limiter.Policies()) > 0 })
	if i < 0 {
		return false
	}
	type key struct{}
	l := adapter.Of(list[i].Limiter)
	pace := l.Value(key{}, func() any { return new(Pace) }).(*Pace)
	if pace.Due() {
		l.Logger().Warn(Uncounted, append([]any{"error", err}, more...)...)
	}
	return true
}

// Uncounted is the line of a request that can't be counted.
const Uncounted = "headgate: a request can't be counted"

// Pace lets a line pass once per second. The zero Pace is ready; do not copy it.
type Pace struct{ last atomic.Int64 }

// Due reports whether the line passes now.
func (p *Pace) Due() bool {
	now, before := time.Now().UnixNano(), p.last.Load()
	//mutant:refusals-once-a-second
	if now-before < int64(time.Second) {
		return false
	}
	return p.last.CompareAndSwap(before, now)
}
