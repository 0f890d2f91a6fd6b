package backend

import (
	"errors"
	"fmt"
	"strings"

	"github.com/headgate-go/headgate/internal/without"
)

// The errors of a store; match with errors.Is. Each states what is known about the
// count.
var (
	// ErrUnavailable: the store could not be asked, or said that it did not
	// decide. Nothing was counted.
	ErrUnavailable = errors.New("headgate: store unavailable, call not counted")
	// ErrPerhapsCounted: the request was sent and no usable answer came. It
	// was counted once or not at all; it is never sent again.
	ErrPerhapsCounted = errors.New("headgate: no answer, call perhaps counted")
	// ErrNeverAdmissible: the cost is above what a policy can grant at any
	// time. Waiting does not help, so it is no denial. Nothing was counted.
	ErrNeverAdmissible = errors.New("headgate: cost can never be admitted")
	// ErrClosed: the store or limiter was closed. Nothing was counted.
	ErrClosed = errors.New("headgate: closed")
	// ErrUnsupported: the operation is not among the store's Capabilities. Nothing was
	// counted.
	ErrUnsupported = errors.New("headgate: operation not supported by this store")
	// ErrServerTooOld: the server lacks what the scripts need.
	ErrServerTooOld = errors.New("headgate: server too old")
)

// Undecided reports whether err means that the store could not decide, not
// that the call was wrong.
func Undecided(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrPerhapsCounted)
}

// Wrap returns an error that matches err and cause. Its text is both texts, with
// the prefix "headgate: " once. A cause that matches err is returned as it is,
// so that nothing is said twice. An error that is ErrPerhapsCounted is never ErrUnavailable too:
// a part of a call may be counted, and another not.
func Wrap(err, cause error) error {
	switch {
	case errors.Is(cause, err):
		return cause
	//mutant:perhaps-or-not-counted
	case err == ErrPerhapsCounted && errors.Is(cause, ErrUnavailable):
		cause = without.Match(cause, ErrUnavailable) // of a part that was not counted
	}
	return &wrapped{err, cause}
}

// wrapped is an error and its cause. They lie in an array, so that looking for one
// allocates nothing: calls may fail by the thousand.
type wrapped [2]error

func (w *wrapped) Error() string {
	return w[0].Error() + ": " + strings.TrimPrefix(w[1].Error(), "headgate: ")
}

func (w *wrapped) Unwrap() []error { return w[:] }

// CorruptError is a stored value that is not Headgate's, or of a format that
// this release does not know. Nothing was counted and the value was left.
type CorruptError struct {
	Key    string // the limited key, as the caller names it
	Stored string // where the value lies in the store; "a or b" where it may be either
}

// Error names the key and where its value lies.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("headgate: stored value of key %.80q is not Headgate's (%.160q)", e.Key, e.Stored)
}

// Is makes a corrupt value match ErrUnavailable: the store can't decide on
// that key, nothing was counted, and the policies' failure mode applies.
func (e *CorruptError) Is(target error) bool { return target == ErrUnavailable }

// RightError is what Ping returns where the user of a server lacks rights that
// the store needs. It matches ErrUnavailable.
type RightError struct {
	Node   string   // host:port of the server
	Rights []string // as ACL SETUSER takes them: "+evalsha", "~headgate:*"; of a PostgreSQL as GRANT does
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

// ScriptError is the error of calls to a server that can't run Headgate's script. It has no
// scripts, does not load this one, or its Lua lacks what the script needs. Nothing was counted.
// Such a server opens no circuit, since it is no outage: each call gets its failure mode.
type ScriptError struct {
	Node string // host:port of the server
	Err  error  // the server's reply
}

// Error names the node, and has the reply.
func (e *ScriptError) Error() string {
	return fmt.Sprintf("headgate: %s can't run the script: %v", e.Node, e.Err)
}

// Is makes it match ErrUnavailable: the failure modes of the policies apply.
func (e *ScriptError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap returns the server's reply.
func (e *ScriptError) Unwrap() error { return e.Err }
