// Package headgate limits rates. It decides, for a key as "user:42", an API key or an
// IP prefix, whether a call may pass now. All processes of a fleet share the count.
//
// A [Limiter] is made of a store and policies. The store has the counts:
// backend/standalone on a Redis server, backend/cluster on a Redis Cluster,
// backend/memory in this process. A [Policy] has a name, an algorithm with its numbers,
// and a failure mode for calls that no store could decide.
//
// Package algo has the algorithms, with what each promises and costs. These are
// FixedWindow, SlidingWindow, BucketedWindow, SlidingLog, CompactLog, TokenBucket,
// Calendar and, for calls that run at once, InFlight.
//
// A call is decided by Allow, AllowN or Do. Wait and WaitReserve wait until it passes.
// Reserve is for a call whose cost is known only afterwards, or that holds a slot while
// it runs. Its [Reservation] is settled at the end. [All] and [ReserveAll] decide for
// several keys at once. Record charges what has happened already, and Return takes units out of
// what is counted. Peek and Reset look at a key and clear it.
//
// With any store:
//
//   - A denied call is charged nothing and stores nothing.
//   - Several policies are decided together, all or nothing, in one round trip.
//   - A call is charged at most once, also when a reply is lost.
//   - A decision takes no longer than the store's budget.
//   - A denial has the exact time after which the same call passes. It passes sooner only
//     if units come back: a reservation is settled below its estimate, or a slot of
//     algo.InFlight is freed before its lease ends.
//
// With a store on Redis this process caches a denial until the call would pass, for at
// most a second (Options.DenyCacheTTL). So a flood on a spent key is answered from
// memory. A reset, a refund or a raised limit in another process takes effect within
// that second.
package headgate
