// Package headgate limits rates: it decides, for a key as "user:42", an API
// key or an IP prefix, whether a call may pass now, on a count that every
// process of a fleet shares.
//
// A [Limiter] is made of a store and policies. The store says where the
// counts live: backend/standalone on a Redis server, backend/cluster on a Redis
// Cluster, backend/memory in this process. A [Policy] is an algorithm with its
// numbers under a name, and what becomes of a call when the store can't be
// asked. The algorithms, what each promises and what it costs, stand in package
// algo.
//
// What holds, with any store:
//
//   - A denied call is charged nothing and stores nothing.
//   - Several policies are decided together, all or nothing, in one round trip.
//   - A call is charged at most once, also when a reply is lost.
//   - A decision takes no longer than the store's budget.
//   - A denial says exactly when the same call will pass.
//
// With a store on Redis a denial is remembered in this process, until the call
// would pass and for a second at most (Options.DenyCacheTTL): a flood on a spent key
// is answered from memory. So what another process does to such a key, a reset,
// a refund or a raised limit, shows within that second.
package headgate
