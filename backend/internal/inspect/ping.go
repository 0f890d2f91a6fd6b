// Package inspect is the operator's view of a server: whether it is fit to serve,
// and what it stores.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/without"
	"github.com/redis/go-redis/v9"
)

// MinRedisVersion is the lowest Redis version that the script works with: the
// oldest that its tests run on.
const MinRedisVersion = "7.0"

// Node is a server that is looked at.
type Node struct {
	Client interface {
		Process(ctx context.Context, cmd redis.Cmder) error
	}
	Name    string // in errors
	Prefix  names.Prefix
	Budget  time.Duration // of the store
	Cluster bool          // it is a member of a Redis Cluster
}

// Patience is the maximum duration of a Ping, and of each other command. A connection may
// have to be made first. Behind a Sentinel that is silent, a client of the user's would
// try for most of a minute.
func Patience(budget time.Duration) time.Duration { return max(10*budget, 5*time.Second) }

// do sends a command that needs the right.
func (n Node) do(ctx context.Context, cmd redis.Cmder, right string) error {
	//mutant:inspection-ends
	within, cancel := context.WithTimeout(ctx, Patience(n.Budget))
	defer cancel()
	begin := time.Now()
	return n.failed(begin, n.Client.Process(within, cmd), right)
}

// failed returns the error of a command that needs the right. It names the node: of
// several, one may have failed.
func (n Node) failed(begin time.Time, err error, right string) error {
	var late net.Error
	var dial *net.OpError
	//mutant:inspected-hidden
	switch err = without.Password(err); {
	case err == nil:
		return nil
	case redis.HasErrorPrefix(err, "NOPERM"):
		return &backend.RightError{Node: n.Name, Rights: []string{right}, Err: err}
	//mutant:removed-command-of-reply
	case redis.HasErrorPrefix(err, "unknown command") && unknown.MatchString(err.Error()):
		return n.removed(strings.ToUpper(unknown.FindStringSubmatch(err.Error())[1]))
	case errors.As(err, &dial) && dial.Op == "dial": // has a time of its own
	//mutant:silent-node-named-so
	case errors.As(err, &late) && late.Timeout(), errors.Is(err, net.ErrClosed): // the client closes a connection that is late
		err = fmt.Errorf("no answer in %v: %w", time.Since(begin).Round(time.Millisecond), err)
	}
	return fmt.Errorf("%w: %s: %s: %w", backend.ErrUnavailable, n.Name, right[1:], err)
}

// unknown matches the command that a reply names. It may be another than was sent: a connection
// begins with HELLO or AUTH.
var unknown = regexp.MustCompile("unknown command ['`]([^'`]+)['`]")

// removed returns the error of commands that the server lacks, as one with rename-command
// does.
func (n Node) removed(commands ...string) error {
	return fmt.Errorf("%w: %s has no command %s (see rename-command)", backend.ErrUnavailable, n.Name, strings.Join(commands, ", "))
}

// read is do for a command on a key. A node that imports the key's slot has the key,
// and answers only after ASKING.
func (n Node) read(ctx context.Context, cmd redis.Cmder, right string) error {
	c, ok := n.Client.(interface{ Pipeline() redis.Pipeliner })
	if !n.Cluster || !ok {
		return n.do(ctx, cmd, right)
	}
	within, cancel := context.WithTimeout(ctx, Patience(n.Budget))
	defer cancel()
	begin := time.Now()
	pipe := c.Pipeline()
	//mutant:imported-keys-read
	_ = pipe.Process(within, redis.NewCmd(within, "asking"))
	_ = pipe.Process(within, cmd)
	_, _ = pipe.Exec(within)
	return n.failed(begin, cmd.Err(), right)
}

// Ping checks that the node is fit to serve a store: a primary, new enough, with
// each right that the scripts need. Then it decides a request on the key, which lies
// on the node, and resets it. A right that is missing is named before that fails. It
// warns where the node may evict counts, and where a round trip takes over a quarter
// of the budget.
func (n Node) Ping(ctx context.Context, s backend.Store, past decide, key string) (warnings []string, err error) {
	info := redis.NewStringCmd(ctx, "info")
	if err = n.do(ctx, info, "+info"); err == nil {
		warnings, err = n.check(info.Val())
	}
	//mutant:ping-names-what-lacks
	if errors.Is(err, backend.ErrServerTooOld) { // or no Redis: what it lacks says more than its version
		if e := n.try(ctx, s, past, probe(backend.Take, key)); errors.As(e, new(*backend.ScriptError)) {
			err = backend.Wrap(err, e)
		}
	}
	if err == nil {
		err = n.rights(ctx, names.Tag(key, ""))
	}
	//mutant:ping-leaves-nothing
	for _, op := range []backend.Op{backend.Take, backend.Reset} {
		if err == nil {
			err = n.try(ctx, s, past, probe(op, key))
		}
	}
	best := time.Hour
	for i := 0; err == nil && i < 5; i++ { // the first may be slow for a reason of its own
		begin := time.Now()
		err = n.do(ctx, redis.NewStatusCmd(ctx, "ping"), "+ping")
		best = min(best, time.Since(begin))
	}
	if err == nil && best > n.Budget/4 { // one slow moment would spend it
		warnings = append(warnings, fmt.Sprintf("a round trip takes %v, and each call has to be answered within %v", best, n.Budget))
	}
	return warnings, err
}

// decide decides a request past the node's circuit.
type decide = func(context.Context, *backend.Request) error

// try decides a request, and one that fails once more, past the node's circuit. Else an
// open circuit would hide the cause for which it has opened.
func (n Node) try(ctx context.Context, s backend.Store, past decide, r backend.Request) error {
	_, err := layer.Ask(ctx, s, r)
	//mutant:ping-past-the-circuit
	if err != nil {
		err = past(ctx, &r)
	}
	if err != nil {
		return backend.Wrap(fmt.Errorf("headgate: a trial request to %s", n.Name), err)
	}
	return nil
}

// check refuses a server that is too old, no primary, or a member of a cluster
// where the store is none.
func (n Node) check(info string) (warnings []string, err error) {
	values := map[string]string{}
	for line := range strings.SplitSeq(info, "\r\n") {
		k, v, _ := strings.Cut(line, ":")
		values[k] = v
	}
	var major, oldest int // releases of the oldest major version are all new enough
	v, evicts := values["redis_version"], values["maxmemory_policy"]
	_, _ = fmt.Sscan(strings.Split(v, ".")[0], &major) // what is no version is older than any
	_, _ = fmt.Sscan(strings.Split(MinRedisVersion, ".")[0], &oldest)
	switch role := values["role"]; {
	case major < oldest:
		return nil, fmt.Errorf("%w: %s has version %q, want at least %s", backend.ErrServerTooOld, n.Name, v, MinRedisVersion)
	case role != "master":
		return nil, fmt.Errorf("%w: %s has the role %q, want a primary", backend.ErrUnavailable, n.Name, role)
	case !n.Cluster && values["cluster_enabled"] == "1":
		return nil, &backend.InvalidError{What: "server", Value: "a member of a Redis Cluster", Want: "a server of its own"}
	case values["maxmemory"] != "0" && evicts != "noeviction" && evicts != "":
		return []string{"maxmemory-policy is " + evicts +
			": an evicted key is a fresh quota; noeviction refuses instead, and the failure mode applies"}, nil
	}
	return nil, nil
}

// granted is a script that returns the indexes of the commands in ARGV that the user may
// not call. The index of a command that the server lacks is negative. KEYS has a hash
// and a log, and the commands name them so.
const granted = `local missing = {}
for i = 1, #ARGV do
  local words = {}
  for word in string.gmatch(ARGV[i], '%S+') do
    words[#words + 1] = word == 'HASH' and KEYS[1] or word == 'LOG' and KEYS[2] or word
  end
  local known, may = pcall(redis.acl_check_cmd, unpack(words))
  if not known then missing[#missing + 1] = -i elseif not may then missing[#missing + 1] = i end
end
return missing`

// needed are the commands that the script calls, and then those that a cluster's
// client sends.
var needed = [...]string{
	"TIME", "HGET HASH f", "HMGET HASH f", "HRANDFIELD HASH", "HSET HASH f v", "HDEL HASH f", "UNLINK HASH",
	"PEXPIRE HASH 1", "GET HASH", "SET HASH v", "PTTL LOG",
	"ZADD LOG 1 m", "ZRANGE LOG 0 0", "ZCOUNT LOG 0 0", "ZCARD LOG", "ZREM LOG m", "ZREMRANGEBYRANK LOG 0 0",
	"ASKING", "CLUSTER SLOTS",
}

// ofCluster is how many of them are the cluster's.
const ofCluster = 2

// rights checks that the client's user may load a script and run it on stored keys with
// that tag. The user must also have the right to each command that the library's script
// calls.
func (n Node) rights(ctx context.Context, tag string) error {
	load := redis.NewStringCmd(ctx, "script", "load", granted)
	if err := n.do(ctx, load, "+script|load"); err != nil {
		return err
	}
	commands := needed[:len(needed)-ofCluster]
	if n.Cluster {
		commands = needed[:]
	}
	args := []any{"evalsha", load.Val(), 2, n.Prefix.Hash(tag), n.Prefix.Log(tag, &probe(backend.Take, "").Policies[1])}
	for _, command := range commands {
		args = append(args, command)
	}
	cmd := redis.NewIntSliceCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	err := n.do(ctx, cmd, "+evalsha")
	//mutant:key-pattern
	if err != nil && strings.Contains(err.Error(), " key") { // as Redis and Valkey word it since 7.0
		return &backend.RightError{Node: n.Name, Rights: []string{"~" + string(n.Prefix) + "*"}, Err: cmd.Err()}
	}
	if err != nil || len(cmd.Val()) == 0 {
		return err
	}
	missing, lacks := &backend.RightError{Node: n.Name}, []string(nil)
	for _, i := range cmd.Val() {
		if i < 0 {
			lacks = append(lacks, strings.Fields(commands[-i-1])[0])
			continue
		}
		words := strings.Fields(strings.ToLower(commands[i-1]))
		if words[0] == "cluster" { // "CLUSTER SLOTS" needs "+cluster|slots"
			words[0] += "|" + words[1]
		}
		missing.Rights = append(missing.Rights, "+"+words[0])
	}
	//mutant:removed-commands-named
	if lacks != nil {
		return n.removed(lacks...)
	}
	return missing
}

// PingKey is Ping's key on one server.
const PingKey = "headgate-ping"

// Split warns if a script over two slots is refused, as behind an address that leads to the
// nodes of a cluster.
func (n Node) Split(ctx context.Context) (warnings []string, err error) {
	load := redis.NewStringCmd(ctx, "script", "load", "return 1")
	if err := n.do(ctx, load, "+script|load"); err != nil {
		return nil, err
	}
	err = n.do(ctx, redis.NewCmd(ctx, "evalsha", load.Val(), 2, n.Prefix.Hash(PingKey), n.Prefix.Hash(PingKey+"2")), "+evalsha")
	var reply redis.Error
	//mutant:split-warned
	if errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "CROSSSLOT") {
		return []string{"a script over two slots is refused: calls of several keys are not decided at once, but by leases, and a batch takes a command per key"}, nil
	}
	return nil, err
}

// probe is a request as a call makes it, on a key of Ping's own. It has a
// policy that lies in a hash and one that lies in a sorted set. What it stores
// expires within seconds, should the reset not follow.
func probe(op backend.Op, key string) backend.Request {
	limit := rule.Per(rule.MaxLogLimit, rule.MinPeriod)
	return backend.Request{Op: op, Group: backend.Group{Key: key, Cost: 1, Policies: []backend.Policy{
		{Name: "ping", Algorithm: rule.FixedWindow(limit), OnFailure: backend.FailClosed},
		{Name: "ping-log", Algorithm: rule.SlidingLog(limit), OnFailure: backend.FailClosed},
	}}}
}
