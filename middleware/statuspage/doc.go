// Package statuspage is a page that shows what limiters do now. It has the limits, the calls that they let
// pass and denied over the last ten minutes. It has the keys that are denied most and those near a limit,
// circuits, round trips, loans, and how full a store in memory is.
//
//	page := statuspage.New(perUser, perOrg)
//	defer page.Close()
//	mux.Handle("/debug/limits/", page)
//
// Below the pattern's path the page has status.json, the same as JSON, and its style and script.
// The figures are those of this process, since New. The page is read only: no request changes a
// count.
//
// Who may see it: people who operate the service. The page has the names of policies, their limits
// and the addresses of Redis nodes, and how near its clients are to the limits. Serve it where expvar
// and pprof are, on an address that clients do not reach, or behind a login. Keys are hashed by a
// secret of the process, unless Keys is set. Then the page has the names of users, or whatever the
// keys are.
//
// While a Page is open each call of its limiters adds to a counter, some 6 ns.
package statuspage
