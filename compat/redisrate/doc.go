// Package redisrate has the API of github.com/go-redis/redis_rate/v10 on
// Headgate. An import line is the migration:
//
//	import redis_rate "github.com/headgate-go/headgate/compat/redisrate"
//
// Both decide by a token bucket (GCRA): Limit.Burst units at once, then
// Limit.Rate per Limit.Period. What a call is answered is the same. These differ:
//
//   - Remaining of a denial is the units that are left, which a smaller call could take.
//     redis_rate answers 0 there.
//   - A call is charged at most once. redis_rate's client re-sends a script whose
//     reply was lost, and each of them is charged.
//   - A call takes as long as the client's ReadTimeout at most, from 100 ms to 1 min. That
//     is 5 s by go-redis's default. redis_rate's client makes up to four such tries.
//     Then, and while the server's circuit is open, the error matches
//     headgate.ErrUnavailable (nothing was counted) or headgate.ErrPerhapsCounted
//     (counted once or not at all). The Result is nil beside an error, as before.
//   - A denied key is denied from memory until it would pass, for 1 s at most.
//     What another process does to it, as Reset, shows only then.
//   - Counts are stored under other names: after a migration each key begins with
//     a full bucket. What redis_rate stored expires by itself.
//   - A bucket's level is stored in units, not as a time. After a change of a
//     key's Rate or Burst what is used stays the same number of units. A new Rate
//     applies from the key's last charge on, also to the time before the change. After
//     a raise an idle key may be full at once; after a cut it may lose what had come back.
//   - AllowAtMost grants whole units.
//   - AllowAtMost of 0 answers a RetryAfter of -1, as AllowN of 0 does. On an empty
//     bucket redis_rate answers the time until one unit is free.
//   - Out of range, with a *headgate.InvalidError: an empty key and one above
//     4,096 bytes, a negative n (it gave units back), a Rate or Burst below 1 or
//     above 2^36, a Period that is not 1 ms to 400 days in whole microseconds.
//   - A *redis.Ring is refused, by each call. Make a limiter per client of its
//     GetShardClients, and choose by GetShardClientForKey; see docs/from.md. Or use a
//     *redis.ClusterClient. With one of those the store has connections of its own; see
//     Limiter.Close.
//
// A call of n above Burst never passes. As in redis_rate it is a denial, with the
// RetryAfter of a bucket that would be large enough. Package headgate returns
// headgate.ErrNeverAdmissible instead.
package redisrate
