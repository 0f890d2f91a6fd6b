package policyfile

import (
	"strconv"
	"time"

	"github.com/headgate-go/headgate/algo"
)

// service is the name of the policy that a rate limiter service's file makes,
// and of its place in the file.
const service = "rate-limiter"

// serviceFields are the fields of such a file, each with the field of a rule
// that has its meaning.
var serviceFields = map[string]string{"use-algo": "algorithm", "window-size": "period", "max-requests": "limit"}

// serviceAlgorithms are its algorithms. Its sliding window is a sorted set of
// calls, so it is exact, as SlidingLog is.
var serviceAlgorithms = map[string]string{"sliding-window-algo": "sliding-log", "fixed-window-algo": "fixed-window"}

// longestWindow is the longest period, in seconds.
const longestWindow = int64(algo.MaxPeriod / time.Second)

// readService returns the rule of a rate limiter service's file. In errors
// its fields have their own names.
func readService(at value) (rule, error) {
	r := rule{name: service, at: at, fields: map[string]value{}}
	err := at.each(func(key string, v value) (err error) {
		field, ok := serviceFields[key]
		if !ok {
			return v.unknown("field", key, sorted(serviceFields))
		}
		r.fields[field], err = translate(key, v)
		return err
	})
	if err != nil {
		return r, err
	}
	for _, key := range sorted(serviceFields) {
		if _, ok := r.fields[serviceFields[key]]; !ok {
			return r, at.missing(key, "a value")
		}
	}
	return r, nil
}

// translate returns v with the value that the rule's field has for it. It
// copies the node, and keeps the line, so that errors stay in the user's own
// file and units.
func translate(key string, v value) (value, error) {
	node := *v.target()
	node.Line, node.Column = v.node.Line, v.node.Column
	switch key {
	case "window-size":
		n, err := v.number()
		if err != nil {
			return v, err
		}
		if n < 1 || n > longestWindow {
			return v, v.errorf("%d; want 1 to %d seconds", n, longestWindow)
		}
		node.Value = strconv.FormatInt(n, 10) + "s"
	case "use-algo":
		name, ok := serviceAlgorithms[node.Value]
		if !ok {
			return v, v.unknown("algorithm", node.Value, sorted(serviceAlgorithms))
		}
		node.Value = name
	}
	return value{v.file, v.field, &node}, nil
}
