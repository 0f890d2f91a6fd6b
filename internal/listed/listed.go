// Package listed has the key by which a policy file passes the names of its policies to
// middleware.
package listed

// Policies is the key of a limiter's Value with the names of all policies of its file, a
// []string. A request of the limiter may lack some of them.
type Policies struct{}
