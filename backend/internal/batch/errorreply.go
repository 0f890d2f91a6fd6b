package batch

import (
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"

	"github.com/headgate-go/headgate/backend"
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
	unfit                       // the server can't run the script at all
	split                       // the server runs no script over two slots
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
	{"NOAUTH", notRun}, {"NOPERM", notRun}, {"WRONGPASS", notRun},
	//mutant:slots-refused-blameless
	{"CROSSSLOT", notRun | blameless | split},
	//mutant:unknown-command-not-counted
	{"ERR unknown command", cannot}, {"ERR This instance has Lua scripting support disabled", cannot},
}

// cannot is the class of a server that can't load the script, or lacks what it needs.
const cannot = notRun | blameless | unfit

// lacking are in the errors of a script that uses a name which the server's Lua lacks. The
// script uses each such name before it reads a key, so it has counted nothing. The second is
// of a server that has no list of names; its Lua fails at the use.
var lacking = []string{"nonexistent global variable", "global 'struct'"}

// notLoaded is the reply to SCRIPT LOAD of a server that does not take the script.
type notLoaded struct{ error }

// Unwrap returns the reply.
func (e notLoaded) Unwrap() error { return e.error }

// raised stands in each error that a command raises in a running script. Its words are
// those of Redis 7 to 8 and of Valkey 8 and 9. The script may have charged a group
// before: such an error is of no class. The script passes on what Redis says of its
// first write, such as OOM or READONLY, without these words and before it has written.
const raised = "on @user_script:"

// is reports whether the error is a reply of one of the classes.
func is(err error, any class) bool {
	return err != nil && classOf(err)&any != 0 // without an allocation if it is nil
}

// classOf returns the class of a reply, 0 if the error has none.
// The first class whose prefix the reply has decides, so the longer of two prefixes stands
// first.
func classOf(err error) class {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return 0
	}
	text := reply.Error()
	lacks := func(name string) bool { return strings.Contains(text, name) }
	switch {
	//mutant:load-refused-not-counted
	case errors.As(err, new(notLoaded)), slices.ContainsFunc(lacking, lacks):
		return cannot
	case lacks(raised):
		return 0
	}
	for _, c := range classes {
		if strings.HasPrefix(text, c.prefix) {
			return c.class
		}
	}
	return 0
}

// learn notes what the reply shows of scripts that the server runs.
func (c *command) learn() {
	switch {
	case is(c.Err(), unfit):
		c.SetErr(&backend.ScriptError{Node: c.at.Node, Err: c.Err()})
	case is(c.Err(), split):
		c.at.split.Store(int64(now() + relearn))
	}
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
