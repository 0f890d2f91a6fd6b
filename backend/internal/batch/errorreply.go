package batch

import (
	"errors"
	"io"
	"strings"
	"syscall"

	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
)

// A class is what an error reply says of a command that the server did not run.
type class int

const (
	notRun    class = 1 << iota // nothing was counted
	reload                      // the script is not loaded
	redirect                    // another server runs it
	soon                        // the next try, within the budget, may find it gone
	blameless                   // no fault of the server
)

// classes are those of the replies of a server that did not run the command, by
// how they begin.
var classes = []struct {
	prefix string
	class
}{
	{"NOSCRIPT", notRun | reload | blameless},
	{"MOVED ", notRun | redirect | blameless}, {"ASK ", notRun | redirect | blameless},
	{"TRYAGAIN", notRun | soon | blameless},
	//mutant:slot-without-owner
	{"CLUSTERDOWN Hash slot not served", notRun | soon | blameless},
	{"CLUSTERDOWN", notRun | soon}, {"LOADING", notRun | soon}, {"MASTERDOWN", notRun | soon},
	{"READONLY", notRun | soon}, {"ERR max number of clients", notRun | soon},
	{"NOREPLICAS", notRun}, {"MISCONF", notRun}, {"BUSY", notRun}, {"OOM", notRun},
	{"NOAUTH", notRun}, {"NOPERM", notRun}, {"WRONGPASS", notRun}, {"CROSSSLOT", notRun},
}

// raised stands in each error that a command raises in a running script. Its words are
// those of Redis 7 to 8 and of Valkey 8 and 9. The script may have charged a group
// before: such an error is of no class. The script passes on what Redis says of its
// first write, such as OOM or READONLY, without these words and before it has written.
const raised = "on @user_script:"

// is reports whether the error is a reply of one of the classes.
// The first class whose prefix the reply has decides, so the longer of two prefixes stands
// first.
func is(err error, any class) bool {
	if err == nil {
		return false // without an allocation
	}
	var reply redis.Error
	if !errors.As(err, &reply) || strings.Contains(reply.Error(), raised) {
		return false
	}
	for _, c := range classes {
		if strings.HasPrefix(reply.Error(), c.prefix) {
			return c.class&any != 0
		}
	}
	return false
}

// withdrawal ends a command that was not written, since its callers had left or had too
// little time. To go-redis it is a reply: the connection stays open.
type withdrawal string

// Is makes it layer.ErrExcused: it shows nothing of the server.
func (withdrawal) Is(target error) bool { return target == layer.ErrExcused }

func (w withdrawal) Error() string { return string(w) }

// RedisError makes it a reply.
func (withdrawal) RedisError() {}

var errWithdrawn error = withdrawal("withdrawn by its caller")

// lost reports whether a connection ended, as it does where a server or something on
// the way closed it. That says little of the server by itself.
func lost(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
