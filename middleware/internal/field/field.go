// Package field has what a server and a client of the RateLimit fields share
// (draft-ietf-httpapi-ratelimit-headers-11).
package field

import "time"

// The fields are lists of strings with parameters (RFC 9651). The names are as
// net/http stores them.
const (
	Limit  = "Ratelimit"
	Policy = "Ratelimit-Policy"
)

// The names of parameters in RateLimit.
const (
	Available = "r"
	Window    = "t"
)

// MaxInteger is the largest integer of a structured field.
const MaxInteger = 999_999_999_999_999

// Seconds rounds up: a client that returns sooner would be denied again.
func Seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}
