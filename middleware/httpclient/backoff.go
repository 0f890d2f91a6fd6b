package httpclient

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headgate-go/headgate/middleware/internal/field"
)

// This file holds requests back. backoff is the time after a denial that names none, and
// quota.wait the pace while units are left or until the window ends. A probe is the one
// request that is sent after a denial.

// scope is what a Transport holds of one server. All times are the client's,
// since only durations come from the server. Two things hold requests back:
// until, a denial that the server sent, and quotas, the units that it reported.
// turn serves requests in the order of their arrival; its holder waits for
// both.
type scope struct {
	turn chan struct{} // of one element: its holder is the request that may be sent next; in order of arrival

	mu struct {
		sync.Mutex
		sent, done uint64    // requests sent, and answered
		users      int       // requests that wait for their turn or are under way
		until      time.Time // denied until then
		status     int       // of the response that denied
		probe      uint64    // the request that was sent last after a denial and is under way; 0 for none
		probed     time.Time // when it was sent
		bare       int       // denials in a row that named no time
		probing    bool      // no request has passed since the denial
		last       uint64    // the last request that was sent before it
		quotas     []quota
		changed    chan struct{} // closed when a response came; nil if no request waits
	}
}

// quota is one policy of a server, by its RateLimit field. left is what the
// newest response reported, less every request that this response may not have
// counted. It is too low rather than too high, as a unit too many is a denial.
type quota struct {
	policy string
	left   int64         // a lower bound of the units that no request has taken
	base   int64         // the units of the newest response
	top    int64         // the quota, or the most units seen
	rolled uint64        // requests up to that number were sent before the window ended last; 0 while the first runs
	seen   uint64        // requests up to that number were sent before the newest response
	span   time.Duration // the window of the newest response
	end    time.Time     // of the window
	last   time.Time     // when a request was sent
}

// ticket is one request under way: its number, and how many had been answered
// when it was sent. From the two follows which requests its response has
// counted.
type ticket struct{ number, done uint64 }

func newScope() *scope { return &scope{turn: make(chan struct{}, 1)} }

// denied returns how long requests are denied for, and by what status.
func (s *scope) denied(now time.Time) (time.Duration, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.until.Sub(now), s.mu.status
}

// held returns how long at least a request is held back, and the status of one that
// can't wait so long. Less than the policies ask for will do where one may be sent
// all the same. While a probe is under way it is the least wait, as a response ends it.
func (s *scope) held(now time.Time) (time.Duration, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case now.Before(s.mu.until):
		return s.mu.until.Sub(now), s.mu.status
	case s.probeWait(now) > 0:
		return 1, http.StatusTooManyRequests
	}
	return s.quotaWait(now, true), http.StatusTooManyRequests
}

// probeWait returns how long the request under way after a denial is waited for. One that
// hangs must not stop the server for ever: after a second another one is sent. It is
// called under the lock.
func (s *scope) probeWait(now time.Time) time.Duration {
	if !s.mu.probing || s.mu.probe == 0 {
		return 0
	}
	//mutant:hung-probe-passed
	return s.mu.probed.Add(longestPace).Sub(now)
}

// wait returns how long the policies ask a request to wait.
func (s *scope) wait(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quotaWait(now, false)
}

// quotaWait is the longest wait of all policies, as each of them must have a
// unit. It is called under the lock.
func (s *scope) quotaWait(now time.Time, force bool) (wait time.Duration) {
	for i := range s.mu.quotas {
		wait = max(wait, s.mu.quotas[i].wait(now, s.mu.sent, force))
	}
	return wait
}

// start counts a request as sent and returns its ticket. If it has to wait
// first, changed is not nil and closed when a response came. The wait is how
// long at most. With force it is sent though the policies ask to wait, but one at a time
// and seldom.
func (s *scope) start(now time.Time, force bool) (t ticket, wait time.Duration, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case now.Before(s.mu.until):
		wait = s.mu.until.Sub(now)
	case s.probeWait(now) > 0:
		wait = s.probeWait(now)
	default:
		wait = s.quotaWait(now, force)
	}
	if wait > 0 {
		return t, wait, s.change()
	}
	if force {
		s.mu.probing, s.mu.last = true, s.mu.sent
	}
	s.mu.sent++
	for i := range s.mu.quotas {
		s.mu.quotas[i].left--
		s.mu.quotas[i].last = now
	}
	if s.mu.probing {
		s.mu.probe, s.mu.probed = s.mu.sent, now
	}
	return ticket{s.mu.sent, s.mu.done}, 0, nil
}

// change returns the channel that the next response closes. It is made only
// while a request waits, so other responses cost nothing.
func (s *scope) change() <-chan struct{} {
	if s.mu.changed == nil {
		s.mu.changed = make(chan struct{})
	}
	return s.mu.changed
}

// finish takes what the response shows of the server; nil is no response. learn also
// takes the units of policies that are not spent. It is false beside a shared limiter,
// which paces the requests itself. finish is called once per ticket, also after an error
// or a panic: requests wait for the end of a probe. It reports whether the response
// denies.
func (s *scope) finish(t ticket, resp *http.Response, now time.Time, learn bool) (denies bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.done++
	if s.mu.probe == t.number {
		s.mu.probe = 0
	}
	if resp != nil {
		denies = s.observe(t, resp, now, learn)
	}
	if s.mu.changed != nil {
		close(s.mu.changed)
		s.mu.changed = nil
	}
	return denies
}

// observe obeys a denial first, and then the units. A policy that counts another unit
// than requests holds requests back only where no unit is left.
func (s *scope) observe(t ticket, resp *http.Response, now time.Time, learn bool) (denies bool) {
	var items []limitItem
	if resp.Header.Get("Age") == "" { // a cache's copy has the numbers of an earlier request
		items = lowest(parseLimits(resp.Header[field.Limit]))
	}
	d := readDenial(resp, items, now)
	switch {
	case d.is:
		if d.wait == 0 {
			d.wait = s.backoff()
		}
		s.deny(resp.StatusCode, now.Add(min(max(d.wait, denialHold), longestHold)))
	default:
		s.mu.bare = 0
		//mutant:probe-alone
		if t.number > s.mu.last {
			s.mu.probing = false
		}
	}
	tops := parseLimits(resp.Header[field.Policy])
	for _, item := range items {
		paces := learn && !slices.ContainsFunc(tops, func(top limitItem) bool { return top.policy == item.policy && top.unit != "" })
		switch {
		case !paces && item.available > 0:
			s.release(t, item)
		case item.available >= 0 && item.window >= 0:
			s.update(t, item, tops, now)
		}
	}
	s.forget(t, items)
	return d.is
}

// backoff is how long a denial holds that names no time. It is 1 s, 2 s, 4 s … 30 s, and 1 s
// again after a response that is none.
func (s *scope) backoff() time.Duration {
	s.mu.bare++
	return min(time.Second<<min(s.mu.bare-1, 5), longestBare)
}

// span returns a window of seconds, cut to longestHold.
func span(seconds int64) time.Duration {
	return time.Duration(min(max(seconds, 0), int64(longestHold/time.Second))) * time.Second
}

// deny never shortens a denial: of two responses on their way the longer wait
// is right.
func (s *scope) deny(status int, until time.Time) {
	s.mu.probing, s.mu.last = true, s.mu.sent
	if until.After(s.mu.until) {
		s.mu.until, s.mu.status = until, status
	}
}

// update takes the units of one policy from the response to request t. Those
// that were sent before it and not answered, and those sent after it, may not
// be in that number yet.
func (s *scope) update(t ticket, item limitItem, tops []limitItem, now time.Time) {
	i := slices.IndexFunc(s.mu.quotas, func(q quota) bool { return q.policy == item.policy })
	if i < 0 {
		if len(s.mu.quotas) == mostQuotas {
			return
		}
		s.mu.quotas = append(s.mu.quotas, quota{policy: item.policy, last: now})
		i = len(s.mu.quotas) - 1
	}
	q := &s.mu.quotas[i]
	q.base, q.rolled, q.seen = item.available, 0, s.mu.sent
	q.left = item.available - int64(s.mu.sent-t.done-1)
	q.span = span(cmp.Or(item.window, 1))
	q.end = now.Add(q.span)
	q.top = max(q.top, item.available)
	for _, top := range tops {
		if top.policy == item.policy && top.quota > 0 {
			q.top = top.quota
		}
	}
}

// release drops a policy that holds requests back only while no unit is left, since the
// response to request t shows one. A response to a request that was sent before the policy
// was last seen may be older, and drops nothing.
func (s *scope) release(t ticket, item limitItem) {
	s.mu.quotas = slices.DeleteFunc(s.mu.quotas, func(q quota) bool {
		//mutant:older-field-releases-nothing
		return q.policy == item.policy && t.number > q.seen
	})
}

// forget drops policies whose window has ended and that the server names no
// more.
func (s *scope) forget(t ticket, items []limitItem) {
	s.mu.quotas = slices.DeleteFunc(s.mu.quotas, func(q quota) bool {
		named := slices.ContainsFunc(items, func(item limitItem) bool { return item.policy == q.policy })
		return !named && q.rolled > 0 && t.number > q.rolled
	})
}

// wait returns how long the next request is to wait for this policy: for the
// window's end where no unit is left. Where less than half are left, requests
// are spread over the window, so that the units last. With force it is the time
// in which a bucket gains a unit, after which a request may pass.
func (q *quota) wait(now time.Time, sent uint64, force bool) time.Duration {
	if !now.Before(q.end) {
		// The server grants at least as much again; the next response tells more.
		q.left, q.end, q.rolled = max(1, q.base), now.Add(q.span), max(sent, 1)
	}
	rest, passed := q.end.Sub(now), now.Sub(q.last)
	switch {
	case q.left <= 0 && force:
		return min(rest, max(q.unit(), longestPace)-passed)
	case q.left <= 0:
		return rest
	case 2*q.left >= q.top || force:
		return 0
	}
	return min(rest/time.Duration(q.left), longestPace) - passed
}

// unit returns the time in which a bucket gains a unit; 0 where no quota was
// seen.
func (q *quota) unit() time.Duration {
	if q.top == 0 {
		return 0
	}
	return q.span / time.Duration(q.top)
}
