// Package policyfile reads policies, plans and limits per tenant from a YAML
// or JSON file, and follows the file while the service runs.
//
//	policies:
//	  requests: {algorithm: sliding-window, limit: 100, period: 1m, on-failure: open}
//	  tokens: {algorithm: token-bucket, limit: 1000, period: 1s, burst: 5000, on-failure: closed}
//	plans:
//	  free: [requests]
//	  paid:
//	    requests: {limit: 1000}
//	    tokens: {}
//	default: free
//	tenants:
//	  acme: paid
//	  umbrella: {plan: paid, policies: {requests: {limit: 5000}}}
//
// policies gives each policy its fields:
//
//   - algorithm: fixed-window, sliding-window, bucketed-window, sliding-log, compact-log,
//     token-bucket, leaky-queue, calendar or in-flight
//   - limit: units per period; of in-flight, the calls that may run at once. The word
//     unlimited leaves the policy out. blocked gives nothing to whoever has the policy, or,
//     with per, to calls that it would limit, and needs no other field
//   - period: a duration with its unit: "500ms", "1m", "1h30m", "30d"; of a calendar day,
//     week or month; in-flight has none
//   - burst: units; of a token-bucket or a leaky-queue, and required there
//   - max-delay: how long a call of a leaky-queue may wait, as 500ms, and required there
//   - buckets: of a bucketed-window, and required there
//   - zone: of a calendar, and required there: UTC, or a name as Europe/Berlin, which
//     needs time zone data (of the host, or by an import of time/tzdata)
//   - week-start: of a calendar's week, and required there: monday to sunday
//   - anchor: of a calendar's month, the day on which it begins, 1 to 31; without it, 1
//   - on-failure: open, closed or local; without it, Options.OnFailure applies
//   - shadow: true for a policy that decides and counts, and denies nothing
//   - per: a dimension beside the key, as model or route: the policy counts each value of
//     it by itself, and only calls that name one, see Limiters.PartsFor. The command
//     headgate check -dimensions model,route FILE finds one that no call has
//   - only: of a policy with per, the value, or the list of values, that it limits
//
// Beside the policies, a list has:
//
//   - shards: sub-keys of a hot key; without it, the key is not spread
//   - borrow: the term for which a process may hold units of a busy key, as 50ms, so that it
//     decides most calls by itself
//   - first: policies that are tried in this order, such as [allowance, credits]: a call is charged
//     to the first that has room, and to the list's other policies. The service must decide by
//     Limiters.FirstFor, and say so by Options.First
//
// Each is a value for all lists of the file, or a value for some plans. A tenant may have its own:
//
//	borrow: {free: 50ms, paid: 200ms}
//	tenants:
//	  umbrella: {plan: paid, borrow: 500ms}
//
// Limiters.Parts returns what limits a call of a tenant: no part where all its policies
// are unlimited, and headgate.ErrBlocked where one is blocked. Middleware answers that
// with 403 or PERMISSION_DENIED, without Retry-After and without a request to the store.
//
// A limit per model beside the tenant's own, and one for only the large model:
//
//	policies:
//	  requests: {algorithm: sliding-window, limit: 100, period: 1m, on-failure: open}
//	  tokens: {algorithm: compact-log, limit: 100_000, period: 1h, on-failure: closed, per: model}
//	  large: {algorithm: sliding-window, limit: 5, period: 1m, on-failure: closed, per: model, only: large}
//
// With per: route each route of an HTTP server has a limit of its own; the example of
// Limiters.PartsFor is such a server.
//
// A list with an in-flight policy is for Limiter.Reserve: Allow refuses it.
//
// With several plans each is a class of keys (Policy.Class). In a full store in memory a flood of
// one plan's keys leaves counts to the others.
//
// A plan lists policies, at least one, or maps policies to the fields that differ. A plan
// without limits is {requests: {limit: unlimited}}. A tenant
// names its plan, or its plan and the fields that differ from it. A tenant that
// the file does not list has the default plan. Without plans, all policies
// together are the default. The order of a list of policies, and so of
// headgate.Call.Costs, is always the order under policies.
//
// The file of a rate limiter service is read too. Its policy is named
// "rate-limiter". It is made from the algorithm (sliding-window-algo is a SlidingLog,
// fixed-window-algo a FixedWindow), the seconds of the window and the calls
// that it admits:
//
//	rate-limiter: {use-algo: sliding-window-algo, window-size: 60, max-requests: 5}
//
// A field that is not listed here is an error. So are a field that is given
// twice, a second YAML document and a YAML merge key. Anchors and aliases may
// be used.
package policyfile
