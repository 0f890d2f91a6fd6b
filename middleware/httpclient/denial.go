package httpclient

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/middleware/internal/field"
)

// This file reads how long a response denies for. It takes the first source that a
// response has. The sources are Retry-After in any form, the milliseconds that some
// servers send beside it, and the families of remaining and reset. Without any of them a
// denial is a bare one.

// The statuses that have no name in net/http. Servers deny with the first two, and with 418.
const (
	statusCalm       = 420
	statusThrottled  = 498
	statusOverloaded = 529
)

// refused reports whether a denial of that status was not carried out, so that any request may
// be sent again after it.
func refused(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusForbidden, http.StatusTeapot, statusCalm, statusThrottled:
		return true
	}
	return false
}

// denied is what a response says of a denial.
type denied struct {
	is   bool
	wait time.Duration // 0: the response names no time
}

// readDenial reads a response. items are the members of its RateLimit field.
//
// A 429 is always a denial. A 503, a 529 or another 4xx is one with Retry-After: without it,
// it says nothing of rates. A 403 is one too if nothing remains. An empty Retry-After names no
// time, and is one all the same of a 429, 403, 503 and 529.
func readDenial(resp *http.Response, items []limitItem, now time.Time) denied {
	only := false // a Retry-After with a time denies
	switch status := resp.StatusCode; status {
	case http.StatusTooManyRequests, http.StatusForbidden, http.StatusServiceUnavailable, statusOverloaded:
	default:
		//mutant:any-4xx-denies
		if only = status >= 400 && status < 500; !only {
			return denied{}
		}
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		now = date // the server's own, so that the difference of the two clocks does not count
	}
	if wait, asked := retryAfter(resp.Header, now); asked {
		return denied{true, max(wait, denialHold)}
	}
	if only {
		return denied{}
	}
	wait, spent := families(resp.Header, now)
	for _, item := range items {
		if item.available == 0 {
			wait, spent = max(wait, span(item.window)), true
		}
	}
	switch {
	//mutant:tokens-left-deny
	case resp.StatusCode == http.StatusTooManyRequests && wait == 0 && !spent:
		return denied{true, tokens(resp.Header, now)}
	case resp.StatusCode == http.StatusTooManyRequests:
		return denied{true, wait}
	case resp.StatusCode == http.StatusForbidden && spent:
		return denied{true, wait}
	//mutant:empty-retry-after-denies
	case len(resp.Header["Retry-After"]) > 0: // an empty one
		return denied{true, wait}
	}
	return denied{}
}

// retryAfter returns how long a response asks to wait, and whether it does. Of several
// values the longest counts. One that can't be read asks too, for 0.
func retryAfter(h http.Header, now time.Time) (wait time.Duration, asked bool) {
	for _, line := range h["Retry-After"] {
		if strings.Trim(line, " \t") == "" {
			continue
		}
		asked = true
		if d, ok := instant(line, now); ok { // a date has a comma
			wait = max(wait, d)
			continue
		}
		for _, v := range strings.Split(line, ",") {
			d, _ := after(v)
			wait = max(wait, d)
		}
	}
	if asked {
		return wait, true
	}
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if n, err := strconv.ParseFloat(strings.Trim(h.Get(name), " \t"), 64); err == nil {
			wait, asked = max(wait, seconds(n/1000)), true
		}
	}
	return wait, asked
}

// after reads a time from now: a number of seconds, or a duration as 6m0s or 7.66s. It
// is rounded up to a second.
func after(v string) (time.Duration, bool) {
	v = strings.Trim(v, " \t")
	if n, err := strconv.ParseFloat(v, 64); err == nil && !math.IsNaN(n) {
		return seconds(n), true
	}
	if d, err := time.ParseDuration(v); err == nil {
		return roundUp(d), true
	}
	return 0, false
}

// seconds rounds up, and cuts what a Duration can't hold.
func seconds(n float64) time.Duration {
	n = math.Ceil(max(n, 0))
	if n > math.MaxInt64/1e9 {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Second
}

// layouts are the dates that servers send beside those of HTTP.
var layouts = []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02 15:04:05"}

// instant reads a date, as the time from now to it, rounded up to a second.
func instant(v string, now time.Time) (time.Duration, bool) {
	v = strings.Trim(v, " \t")
	at, err := http.ParseTime(v)
	for i := 0; err != nil && i < len(layouts); i++ {
		at, err = time.Parse(layouts[i], v)
	}
	if err != nil {
		return 0, false
	}
	return roundUp(at.Sub(now)), true // Sub saturates at 292 years
}

func roundUp(d time.Duration) time.Duration {
	if d > math.MaxInt64-time.Second {
		return d
	}
	return time.Duration(field.Seconds(max(d, 0))) * time.Second
}

// reset reads the value of a reset. A number is an instant, in seconds, milliseconds,
// microseconds or nanoseconds by its size, and one below 10^9 is seconds from now. Dates and
// durations are read too. A time years ahead is of another unit or another meaning, and none.
func reset(v string, now time.Time) (time.Duration, bool) {
	d, ok := resetAt(v, now)
	//mutant:reset-years-ahead
	if d > farthest {
		return 0, false
	}
	return d, ok
}

// farthest is how far ahead a reset may lie: the longest quotas are those of a year.
const farthest = 366 * 24 * time.Hour

func resetAt(v string, now time.Time) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.Trim(v, " \t"), 64)
	switch {
	case err != nil:
		if d, ok := instant(v, now); ok {
			return d, true
		}
		return after(v)
	case !(n >= 1e9): // a NaN too
		return after(v)
	}
	unit := float64(time.Second)
	for ; n >= 1e11 && unit > 1; unit /= 1000 { // seconds of the year 5138
		n /= 1000
	}
	return roundUp(time.UnixMilli(int64(min(n, 1e12) * 1000)).Sub(now)), true
}

// dimension is one limit of a response, such as requests or tokens.
type dimension struct {
	name   string        // of its fields, without remaining and reset
	left   float64       // what remains; -1 where the response does not say
	reset  time.Duration // 0 where the response does not say
	resets bool
	after  bool // reset is of an "after", which is more exact than a reset beside it
}

// families reads the fields by which servers show limits under names of their own:
// X-RateLimit-Reset, RateLimit-Reset, X-Rate-Limit-Reset, X-RateLimit-Reset-After,
// X-RateLimit-Reset-Tokens, Anthropic-RateLimit-Tokens-Reset, each with its remaining.
// Only limits of which nothing remains, or that do not say, count. The wait is the
// longest of theirs; spent reports whether one says that nothing remains.
func families(h http.Header, now time.Time) (wait time.Duration, spent bool) {
	for _, d := range dimensions(h, now) {
		if d.left > 0 {
			continue
		}
		spent = spent || d.left == 0
		if d.resets {
			wait = max(wait, d.reset, denialHold)
		}
	}
	return wait, spent
}

// tokens returns the shortest reset of a limit of tokens, of which a request may cost more
// than remain. It is 0 if there is none of at most longestBare. With a longer reset, a limit
// that the response does not name may have denied.
func tokens(h http.Header, now time.Time) (wait time.Duration) {
	for _, d := range dimensions(h, now) {
		if d.resets && d.reset <= longestBare && strings.Contains(d.name, "token") && (wait == 0 || d.reset < wait) {
			wait = d.reset
		}
	}
	return wait
}

func dimensions(h http.Header, now time.Time) (all []dimension) {
	for name, lines := range h {
		rest, what := attribute(name)
		if what == "" || len(lines) == 0 {
			continue
		}
		i := slices.IndexFunc(all, func(d dimension) bool { return d.name == rest })
		if i < 0 {
			i = len(all)
			all = append(all, dimension{name: rest, left: -1})
		}
		for _, line := range lines {
			all[i].read(what, line, now)
		}
	}
	if d, ok := draft7(h[field.Limit], now); ok {
		all = append(all, d)
	}
	return all
}

// attribute splits the name of a field into what it says, "remaining", "reset" or
// "after", and the limit's own name.
func attribute(name string) (rest, what string) {
	name = strings.Replace(strings.ToLower(name), "rate-limit", "ratelimit", 1)
	if !strings.Contains(name, "ratelimit") {
		return "", ""
	}
	words := strings.Split(name, "-")
	words = slices.DeleteFunc(words, func(w string) bool {
		switch w {
		case "remaining", "reset", "after":
			what = w
			return true
		}
		return false
	})
	return strings.Join(words, "-"), what
}

// read takes the value of a field. Of several values the lowest that remains counts, and
// the longest reset.
func (d *dimension) read(what, value string, now time.Time) {
	switch what {
	case "remaining":
		number, _, _ := strings.Cut(value, ";") // as "0;w=21600"
		n, err := strconv.ParseFloat(strings.Trim(number, " \t"), 64)
		//mutant:lowest-remaining-holds
		if err == nil && (!(d.left >= 0) || n < d.left) { // a NaN is none
			d.left = max(n, 0)
		}
	case "after":
		if wait, ok := after(value); ok && d.after {
			d.reset = max(d.reset, wait)
		} else if ok {
			d.reset, d.resets, d.after = wait, true, true
		}
	case "reset":
		if wait, ok := reset(value, now); ok && !d.after {
			d.reset, d.resets = max(d.reset, wait), true
		}
	}
}

// draft7 reads RateLimit as the draft of that number has it: limit=100, remaining=0,
// reset=50.
func draft7(lines []string, now time.Time) (d dimension, ok bool) {
	d.left = -1
	for _, pair := range strings.FieldsFunc(strings.Join(lines, ","), func(r rune) bool { return r == ',' || r == ';' }) {
		name, value, _ := strings.Cut(strings.Trim(pair, " \t"), "=")
		if name == "remaining" || name == "reset" {
			d.read(name, value, now)
			ok = true
		}
	}
	return d, ok
}
