// Package httplimit limits the rate of an HTTP server's requests.
//
// New makes a middleware of a headgate.Limiter and a Key that says whose count a
// request is charged to. It is a func(http.Handler) http.Handler, for net/http
// and every router that takes one. There is no default key: an address is a
// client only where no proxy stands between, and then RemoteAddr says so.
//
// # What a client sees
//
// The response to a request that was decided, passed or denied, has
// RateLimit-Policy and RateLimit with a member per policy, by
// draft-ietf-httpapi-ratelimit-headers-11:
//
//	RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400
//	RateLimit: "burst";r=50;t=30, "daily";r=700;t=6800
//
// q is the policy's limit and w its period in seconds. Of a TokenBucket q is
// the burst and w the time in which it fills. A w below a second is left out. r
// is the number of units that would pass now. t is in whole seconds, rounded
// up. Where the policy denies, it is the time until the same request passes,
// else the time until nothing is counted any more.
//
// A denial has status 429, Retry-After, and a body of type
// application/problem+json (quota-exceeded) with the names of the policies that
// deny. Retry-After is the time until the same request passes, rounded up, at
// least 1, and later by up to Options.RetryJitter.
//
// Of an algo.InFlight q is the number of requests that may run at once, and there is
// neither w nor t:
//
//	RateLimit-Policy: "running";q=20;qu="concurrent-requests"
//	RateLimit: "running";r=7
//
// A policy with Policy.Shadow is in none of these fields and no body: it denies
// nothing, and a client that read its numbers would slow down.
//
// # What a request has used
//
// A request holds a slot of an InFlight policy until its handler returns, panics
// and hijacks included. Where the cost shows only in the response, Options.Settle
// returns it: by the status, the header, the bytes written, or what the handler
// gave to Report. So failures can be counted alone: five failed logins in 15
// minutes are a limit of five, with a Settle that returns 0 for a login that
// succeeded. A login under way is counted until it has ended. Options.SettleWait
// lets others of its key wait for that, instead of denying them.
//
// # When the store fails
//
// A policy's failure mode decides. Under FailOpen the request passes. Under
// FailClosed it gets status 503, Retry-After and a body of the type
// temporary-reduced-capacity. Under FailLocal this process decides with its
// share of the limit, with the fields of any decision. Where nobody counted,
// RateLimit and X-RateLimit-* are absent; RateLimit-Policy names the policy all
// the same.
//
// A request that was not decided has none of these fields: one that
// Options.Skip or EmptyPasses lets through, or one without a key (400). Neither
// has one that costs more than can ever be granted (403), or that finds the
// store closed or its deadline passed (503). An error of the key's function
// (500) has none either. That 503 has no Retry-After, since nobody can tell a
// time. A request whose client left before the decision has neither status:
// logs show 499.
//
// # Clients
//
// Transport of package httpclient is the other side: it reads these fields from any
// server.
package httplimit
