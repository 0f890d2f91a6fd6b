// Headgate looks at the counts of Headgate limiters on a Redis server, a Redis Cluster or a
// PostgreSQL, and resets them.
//
//	headgate peek -policies limits.yaml -tenant acme user:42
//	headgate peek user:42          # what is stored, without a policy file
//	headgate reset -policies limits.yaml user:42
//	headgate reset user:42         # all that is stored of the key
//	headgate leases user:42        # reservations that are not settled
//	headgate keys user:            # stored keys of callers' keys that begin so
//	headgate top -policies limits.yaml             # until interrupted; -every 0 prints once
//	headgate check limits.yaml     # whether a service can load the file
//	headgate check -dimensions model,route limits.yaml   # and counts by no other dimension
//	headgate ping
//	headgate migrate -postgres postgres://user@host/database   # its tables
//	headgate advise -per 1m -log access.log > limits.yaml   # limits that deny 0.1 % of its calls
//	headgate replay -policies limits.yaml -log access.log   # what the file would have denied
//	headgate replay -policies limits.yaml -log access.log -html report.html
//	headgate peek -header X-API-Key=K              # the key that middleware makes of a header
//	headgate peek -policies limits.yaml -of model=large tenant:7   # policies with per: model
//	headgate peek -h                               # what peek does, and its flags
//
// The server is that of -redis or -postgres, or of the variable HEADGATE_REDIS or
// HEADGATE_POSTGRES, which keeps a password out of the list of processes. docs/operations.md
// lists the rights that each command needs.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	_ "time/tzdata" // a policy file may name a zone that this host has no data of

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/policyfile"
	"github.com/redis/go-redis/v9/logging"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // ends top
	defer stop()
	logging.Disable() // or failed dials are printed beside the error
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command is one of the words after headgate. A new one is a line in commands.
type command struct {
	args string   // as the usage has them
	does string   // in a line
	more string   // of its own help
	keys int      // how many arguments at most: the keys
	uses []string // its flags
	run  func(ctx context.Context, c *session, args []string) error
}

var commands = map[string]command{
	"peek": {"KEY", "what each policy counts of the key; without -policies what is stored of it", perOf, 1,
		asking("policies", "plan", "tenant", "of", "cost", "header"), peek},
	"reset": {"KEY", "delete what the policies count of the key; without -policies all that is stored of it", perOf, 1,
		asking("policies", "plan", "tenant", "of", "header"), reset},
	"leases": {"KEY", "list the reservations of the key that are not settled", leaseOf, 1, asking("header"), leases},
	"keys":   {"[PREFIX]", "list what is stored of the keys that begin with PREFIX", keysOf, 1, asking(), keys},
	"top": {"", "the fullest keys read so far, refreshed until interrupted; -every 0 prints once", topOf, 0,
		asking("policies", "plan", "tenant", "of", "n", "sample", "every", "page"), top},
	"check": {"FILE", "whether a service can load the policy file, and its plans; asks no server", "", 1, []string{"dimensions", "json"}, check},
	"replay": {"[FILE]...", "which calls of an access log the policies of a file would have denied; asks no server", replayOf, math.MaxInt,
		[]string{"policies", "against", "log", "format", "key", "at", "duration", "zone", "within", "unsorted", "cost", "plan", "tenant", "per", "enforce", "n", "hash", "html", "max-keys", "json"}, replayLogs},
	"advise": {"[FILE]...", "limits that would have denied few calls of an access log, as a policy file; asks no server", adviceOf, math.MaxInt,
		[]string{"log", "per", "deny", "keys", "format", "key", "at", "duration", "zone", "within", "unsorted", "cost", "max-keys", "json"}, adviseLogs},
	"migrate": {"", "create the tables of a PostgreSQL, if they are not there", migrateOf, 0,
		append([]string{"sql", "logged"}, postgresFlags...), migrate},
	"ping": {"", "whether the server can serve limiters: version, rights, configuration, round trip", "", 0, asking(), ping},
}

const (
	perOf = `
A plan without limits, or one that is blocked, counts nothing: the command prints that, with
status 0. Policies with per count each value of their dimension under a key of its own:
-of model=large is for those of KEY:model:large. peek of a call that would pass names
the policies that it has not asked, and reset notes which counts remain.
`
	keysOf = `
A line has the key, as a shell takes it for peek and reset, and its name in Redis. A key with
spaces, braces, ~ or other bytes than printable ASCII, or with more than 64 bytes, is stored as a
hash. It is listed as (a hash), and only without PREFIX. -of of peek and reset finds it.
`
	leaseOf = `
The slots of a job that died are free when its lease ends. To free them before, use
headgate reset KEY. It ends all leases of the key, also those of jobs that run, and removes
its counts. With a -policies FILE that has only the in-flight policy, other counts stay.
`
	migrateOf = `
Neither headgated nor the library creates tables by itself, and no table that is there is changed.
If the service's role may not create tables, run this as another one: -sql prints the statements.
headgate ping with the service's own URL then prints what to grant its role.
`
	topOf = `
All keys are measured by the policies of one plan: that of -plan or -tenant, else the default.
-of only chooses policies: keys of other values are measured by them too. A key that is stored as
a hash is counted and not listed.
A stored key does not tell its tenant, so a key of another plan shows a wrong share. Use -tenant
for a tenant with limits of its own, and headgate peek for one key. Keys of policies with per
need -of.
With -page URL the list is that of one process: the ten keys that it denies most. No server is asked.
`
)

// serverFlags are the flags of every command that asks a server.
var serverFlags = append([]string{"redis", "cluster", "sentinel", "ca", "cert", "key", "json"}, postgresFlags...)

// asking returns the flags of a command that asks a server: its own, and the server's.
func asking(own ...string) []string { return append(own, serverFlags...) }

// errUsage is a command line that can't be run. The flag package, or dispatch,
// has printed why.
var errUsage = errors.New("usage")

// misuse is a value of the command line that can't be run, found after the line was read.
type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

func (m misuse) Error() string { return strings.TrimPrefix(m.error.Error(), "headgate: ") }

// run runs a command line and returns the exit status: 1 for what failed, 2 for
// a command line that can't be run. It is all of main that a test can call.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	stdout, stderr = terminal{stdout}, terminal{stderr}
	s := &session{out: stdout, notes: stderr}
	err := s.dispatch(ctx, args)
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	}
	status := 1
	if errors.As(err, new(misuse)) {
		status = 2
	}
	for _, line := range strings.Split(err.Error(), "\n") { // a node each
		fmt.Fprintf(stderr, "headgate: %s\n", line)
	}
	if status == 2 && !errors.As(err, new(*policyfile.Error)) {
		fmt.Fprintln(stderr, hint(s.command))
	}
	return status
}

// explain returns an error in words of keys and nodes, without repetition: a line per
// node. No call is counted here, so it leaves out what is known of the count.
func explain(command string, err error) string {
	lost := "no answer"
	if command == "reset" {
		lost += ", perhaps reset"
	}
	unavailable := strings.TrimPrefix(headgate.ErrUnavailable.Error(), "headgate: ")
	words := strings.NewReplacer(
		unavailable+": ", "", unavailable, "no answer", "call not sent, not counted", "not sent",
		strings.TrimPrefix(headgate.ErrPerhapsCounted.Error(), "headgate: "), lost,
	)
	var lines []string
	for _, line := range strings.Split(err.Error(), "\n") {
		line = words.Replace(strings.TrimPrefix(line, "headgate: "))
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// grant returns the command that grants the rights that err names, or "". The
// user is that of the URL, since the error does not contain it.
func (s *session) grant(err error) string {
	var missing *backend.RightError
	if !errors.As(err, &missing) {
		return ""
	}
	if _, ok := s.store.(*postgres.Store); ok {
		return s.grantSQL(missing)
	}
	return fmt.Sprintf("ACL SETUSER %s %s", cmp.Or(s.user, "default"), strings.Join(missing.Rights, " "))
}

// dispatch checks the command line before it opens the store, so that a mistake
// costs no connection. Errors of usage go to stderr at once: the hint, or the
// usage, follows them there.
func (s *session) dispatch(ctx context.Context, args []string) error {
	flags := s.flags(s.notes)
	words, err := permuted(flags, args)
	if len(words) > 0 {
		s.command = words[0]
	}
	if told, err := s.help(words, err, flags); told {
		return err
	}
	if err != nil { // package flag has printed why
		fmt.Fprintln(s.notes, hint(s.command))
		return errUsage
	}
	c := commands[words[0]]
	if names := c.foreign(flags); len(names) > 0 {
		return s.refuse(words[0] + " has no flag " + strings.Join(names, ", "))
	}
	words, err = s.keyed(c, words)
	if err != nil {
		return err
	}
	if wrong := c.wrong(words[1:]); wrong != "" {
		return s.refuse(printable(words[0]) + ": " + wrong)
	}
	if c.args == "KEY" && words[1] == "" { // as of a variable that is not set
		return s.refuse("the key is empty")
	}
	defer s.close()
	if err := s.open(slices.Contains(c.uses, "redis") || words[0] == "check"); err != nil {
		return err
	}
	err = c.run(ctx, s, words[1:])
	if grant := s.grant(err); grant != "" {
		fmt.Fprintln(s.notes, "to grant it:", grant)
	}
	if err == nil || errors.Is(err, errUnfit) || errors.As(err, new(misuse)) {
		return err
	}
	return errors.New(explain(words[0], err))
}

// refuse prints why a command line can't be run.
func (s *session) refuse(why string) error {
	fmt.Fprintf(s.notes, "headgate: %s\n%s\n", why, hint(s.command))
	return errUsage
}

// hint returns the line that follows an error of usage. The whole usage would push the error off
// the screen.
func hint(command string) string {
	if _, ok := commands[command]; !ok {
		return "headgate -h lists the commands"
	}
	return "headgate help " + command + " lists its flags"
}

// foreign returns the flags of the command line that the command does not have.
func (c command) foreign(flags *flag.FlagSet) (names []string) {
	flags.Visit(func(f *flag.Flag) {
		if c.run != nil && !slices.Contains(c.uses, f.Name) {
			names = append(names, "-"+f.Name)
		}
	})
	return names
}

// wrong returns why the command can't be run with these arguments, or "". The
// zero command is one that is not among commands.
func (c command) wrong(args []string) string {
	switch {
	case c.run == nil:
		return "unknown command"
	case len(args) == 0 && (c.args == "KEY" || c.args == "FILE"):
		return "want a " + c.args
	case c.keys == 0 && len(args) > 0:
		return "want no argument"
	case len(args) > c.keys:
		return fmt.Sprintf("want one %s, not %d arguments", strings.Trim(c.args, "[]"), len(args))
	}
	return ""
}

// permuted parses flags wherever they stand, and returns the other words.
// Package flag stops at the first word, so "peek KEY -cost 5" would
// ignore the cost. What follows "--" is no flag, as a key may begin with a
// dash.
func permuted(flags *flag.FlagSet, args []string) (words []string, err error) {
	for len(args) > 0 {
		if err := flags.Parse(args); err != nil {
			return words, err
		}
		rest := flags.Args()
		if at := len(args) - len(rest); at > 0 && args[at-1] == "--" || len(rest) == 0 {
			return append(words, rest...), nil
		}
		words, args = append(words, rest[0]), rest[1:]
	}
	return words, nil
}
