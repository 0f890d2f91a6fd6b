package batch

import (
	"errors"
	"strings"

	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
)

// notRun begin the replies of a server that did not run the command. They do
// not hold of an error that came out of the running script; see raised.
var notRun = []string{
	"NOSCRIPT", "MOVED ", "ASK ", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY",
	"NOREPLICAS", "MISCONF", "BUSY", "OOM", "NOAUTH", "NOPERM", "WRONGPASS", "ERR max number of clients",
}

// redirects name another server.
var redirects = []string{"MOVED ", "ASK "}

// soon are those that the next try, within the budget, may find gone.
var soon = []string{"TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "ERR max number of clients"}

// excused are no fault of the server.
var excused = []string{"NOSCRIPT", "MOVED ", "ASK ", "TRYAGAIN"}

// raised stands in each error that a command raises in a running script, in the
// words of Redis 7 to 8 and of Valkey 8 and 9. The script may have charged a
// group before. It hands on what Redis says of a script's first write, such as
// OOM or READONLY, without these words and before it has written.
const raised = "on @user_script:"

func hasPrefix(err error, prefixes []string) bool {
	if err == nil {
		return false // without an allocation
	}
	var reply redis.Error
	if !errors.As(err, &reply) || strings.Contains(reply.Error(), raised) {
		return false
	}
	for _, p := range prefixes {
		if strings.HasPrefix(reply.Error(), p) {
			return true
		}
	}
	return false
}

// poolFull reports whether the client had no connection for a command.
func poolFull(err error) bool {
	return errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrPoolTimeout)
}

// resendable reports whether another server, or another moment, may run what was
// answered with this error.
func resendable(err error) bool { return hasPrefix(err, redirects) || hasPrefix(err, soon) }

// outcome returns what the end of a command tells of the server: nil,
// layer.ErrFailed or layer.ErrExcused.
func outcome(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errWithdrawn), poolFull(err), hasPrefix(err, excused): // mutant: withdrawn-excused
		return layer.ErrExcused
	}
	return layer.ErrFailed
}

// withdrawal ends a command that was not written. To go-redis it is a reply: the
// connection stays open.
type withdrawal string

func (w withdrawal) Error() string { return string(w) }

// RedisError makes it a reply.
func (withdrawal) RedisError() {}

var errWithdrawn error = withdrawal("withdrawn by its caller")
