// Package httplimit limits the rate of an HTTP server's requests.
//
// New makes a middleware of a headgate.Limiter and a Key that says whose count a
// request is charged to. It is a func(http.Handler) http.Handler, for net/http
// and every router that takes one. There is no default key: an address is a
// client only where no proxy stands between, and then RemoteAddr says so.
//
// NewAll decides by what a function returns for each request. These are several limiters
// and keys, such as a user's and the organisation's, all or nothing, or the limiter of a
// customer's plan. Allow is a limit inside of a handler, by what the handler has read, and
// gives the handler the states of the policies. Behind New and NewAll a handler finds them
// as text, in the header RateLimit of its response.
//
// The middleware fits chi as it is. Module examples/routers has adapters for
// echo and gin. fiber is not net/http. Its adaptor.HTTPMiddleware takes a middleware
// without Settle. Else decide by headgate.All there, and copy the fields that WriteFields
// sets.
//
// Two middlewares that charge one count, by policies of one name, charge each request
// twice. The limiter's Logger gets one warning per pair where requests of this process
// meet both. The first 100 of each handler are observed, and one in 1,000 after them. Two
// servers of which one calls the other are not noticed, nor calls of a limiter in your
// own code. Give the second policy another name.
//
// # What a client sees
//
// The response to a request that was decided, passed or denied, has
// RateLimit-Policy with a member per policy. It also has RateLimit with a member per policy
// whose count is known, by draft-ietf-httpapi-ratelimit-headers-11:
//
//	RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400
//	RateLimit: "burst";r=50;t=30, "daily";r=700;t=6800
//
// q is the policy's limit and w its period in seconds. Of a TokenBucket q is
// the burst and w the time in which it fills. Of a Calendar w is that of its longest
// period, as 31 days. A w below a second is left out. r
// is the number of units that would pass now. t is in whole seconds, rounded
// up. Where the policy denies, it is the time until the same request passes,
// else the time until nothing is counted any more. With NewAll a denial from memory
// has only the policies of the keys that are known to be spent, in RateLimit and in the body.
//
// A denial has status 429, Retry-After, and a body of type
// application/problem+json (quota-exceeded) with the names of the policies that
// deny. Retry-After is the time until the same request passes, rounded up, at
// least 1, and later by up to Options.RetryJitter. The request may pass sooner if
// requests that run now give units back, or free a slot of algo.InFlight: see
// Options.SettleWait.
//
// A policy counts requests where RateLimit-Policy has no qu. Options.Units names another
// unit. Without it, qu is "units" if Options.Cost or Options.Settle is set. It is so too if
// the call of Func or a part has a cost that is not 1.
//
// Behind a reverse proxy of this package the upstream's own fields are sent too: see
// Upstream.
//
// Of an algo.InFlight q is the number of requests that may run at once, and there is
// neither w nor t:
//
//	RateLimit-Policy: "running";q=20;qu="concurrent-requests"
//	RateLimit: "running";r=7
//
// A policy with Policy.Shadow is in none of these fields and no body. It denies
// nothing, and a client that read its numbers would slow down.
//
// # What a request has used
//
// A request holds a slot of an InFlight policy until its handler returns, panics
// and hijacks included. Where the cost shows only in the response, Options.Settle
// returns it. It goes by the status, the header, the bytes written, or what the handler
// gave to ReportPolicy, by a policy's name, or to Report. So failures can be counted by themselves. Five failed logins in 15
// minutes are a limit of five, with a Settle that returns 0 for a login that
// succeeded. A login under way is counted until it has ended. Options.SettleWait
// lets others of its key in the same process wait for that, instead of denying them.
//
// Fields that are not sent yet have the counts after the settlement. Once the handler has
// written a status or a body, they have the counts before the settlement. Options.Settled
// has the counts after it, as Outcome.States.
//
// # When requests wait
//
// A request that an algo.LeakyQueue delays waits before its handler is called, at most
// Options.Delayed of them at once. The server's own time limits go on meanwhile.
//
// # When the store fails
//
// A policy's failure mode decides. Under FailOpen the request passes. Under
// FailClosed it gets status 503, Retry-After and a body of the type
// temporary-reduced-capacity. Under FailLocal this process decides with its
// share of the limit. RateLimit-Policy and X-RateLimit-Limit have the whole limit then,
// and the other fields what this process has counted. If no store counted,
// RateLimit and X-RateLimit-* are absent; RateLimit-Policy names the policy all
// the same.
//
// A request that was not decided has none of these fields. Such a request passes if
// Options.Skip or EmptyPasses lets it through, or if it costs nothing. Any other gets an
// error. It is 400 without a key, with a key that is too long or given several times,
// and with a negative cost. It is 403 for a cost that can never be granted and for a
// blocked key. These differ in the type of the problem; see WriteError. It is 500 for an
// error of the key's function or of the limiter, which a Logger gets too. It is 503 where the store is closed or the deadline has
// passed. That 503 has no Retry-After, since there is no known time. A request whose client left before the decision gets no status: logs show
// 499. All answers of the middleware are no-store.
//
// # Clients
//
// Transport of package httpclient is the other side: it reads these fields from any
// server.
package httplimit
