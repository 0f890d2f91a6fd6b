// Package otellimit makes OpenTelemetry metrics of a limiter's events:
//
//	metrics, err := otellimit.New(provider, nil)
//	limiter, err := headgate.New(store, policies, &headgate.Options{Observer: metrics.Observe})
//
// Another limiter that headgate.New makes on the same store needs its own Metrics.
//
// The metrics, with their units and attributes:
//
//   - headgate.decisions, a counter ({decision}): headgate.policy, the policy that
//     binds; headgate.operation ("take", "reserve", "at_most", "peek", "settle",
//     "extend", "record", "reset"); headgate.result ("allowed", "denied", "done" of
//     the last four operations, "error" of a call that returned one);
//     headgate.source ("store", "deny_cache", "fail_open", "fail_closed",
//     "fail_local", "loan", "none" of a call that costs nothing); error.type where
//     something failed. Shadow policies are not in it.
//   - headgate.shadow.decisions, a counter ({decision}): what the shadow policies of
//     the calls that passed decided, with the same attributes. Its result "denied" is
//     a call that passed and that they would have denied. A call for several keys is
//     counted for the shadow that binds of all keys whose limiters have an observer.
//   - headgate.store.duration, a histogram (s): the time that a call spent in the
//     store, by headgate.operation and error.type. Calls that did not ask the store
//     are not in it.
//   - headgate.batch.size, a histogram ({call}): the calls per round trip, by
//     headgate.node.
//   - headgate.batch.duration, a histogram (s): the round trips, by headgate.node.
//   - headgate.circuit.state, a gauge ({circuit}): 1 for the state that the circuit of
//     a headgate.node is in, 0 for the others, by headgate.circuit.state ("closed",
//     "open", "half_open", "gone").
//   - headgate.circuit.changes, a counter ({change}): by headgate.node and the
//     headgate.circuit.state that was entered.
//   - headgate.policy.limit, a gauge ({unit}), and headgate.policy.period, a gauge (s):
//     what the latest call by a headgate.policy was decided by, with
//     headgate.algorithm. Of a TokenBucket they are the burst and the time in which
//     it fills. An InFlight has no period. Where one name has several limits, as for
//     plans, it is one of them.
//   - headgate.config.loads, a counter ({load}): reloads of a changed policy file, by
//     headgate.result ("ok", "error"), and headgate.config.refused, a gauge ({file}): 1
//     if the file as it is now is not used, since it is invalid, else 0. Both need
//     Metrics.Reloaded as policyfile.Options.Reloaded, and are absent before the first
//     reload.
//   - headgate.borrow.keys, a gauge ({key}), and the counters headgate.borrow.requests
//     ({request}), by headgate.result ("answered", "lost"), headgate.borrow.units
//     ({unit}), by headgate.units ("lent", "given_back", "used"), and
//     headgate.borrow.denials ({decision}): of limiters with Borrow, once
//     Metrics.Borrow was called. What is held is what was lent, less what was given
//     back or used. Units that end with their loan, or with a Reset, are in neither: a
//     process has them that stalls or loses replies. Denials are those of calls of one
//     key that would have passed if no unit were lent. Another process may have given
//     such a unit back unused.
//
// No attribute contains a key, and each has few values. error.type is one of
// perhaps_counted, corrupt, unavailable, never_admissible, closed, canceled,
// deadline_exceeded, invalid, not_held, lease_ended, held, unsupported and _OTHER. A Reserve
// under an ID of the caller's that finds it open is held: the call passes. Beyond
// 100 policy names, and of counters and histograms beyond 1,000 nodes, the rest share
// the value _OTHER. A node that left its cluster is "gone" until 32 others have left.
// headgate.circuit.state has the 1,000 nodes that changed last; those of a store that
// was closed stay until then.
//
// A reset, a settlement, an extension, and a call that returned an error have a
// headgate.policy only where the limiter has one policy.
//
// The folder grafana has a dashboard and alert rules for Prometheus.
package otellimit
