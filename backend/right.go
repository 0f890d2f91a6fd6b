package backend

import (
	"fmt"
	"strings"
)

// RightError is what Ping returns where the user of a server lacks rights that
// the store needs. It matches ErrUnavailable.
type RightError struct {
	Node   string   // host:port of the server
	Rights []string // as ACL SETUSER takes them: "+evalsha", "~headgate:*"
	Err    error    // the server's refusal; nil where the server was asked for the rights
}

// Error names the rights and the node.
func (e *RightError) Error() string {
	s := fmt.Sprintf("headgate: missing right %s on %s", strings.Join(e.Rights, " "), e.Node)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is makes a missing right match ErrUnavailable.
func (e *RightError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns the server's refusal.
func (e *RightError) Unwrap() error { return e.Err }
