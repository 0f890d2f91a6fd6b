package batch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/wire"
	"github.com/redis/go-redis/v9"
)

// MinRedisVersion is the lowest Redis version that the script works with: the
// oldest that its tests run on.
const MinRedisVersion = "7.0"

// Info is a server's INFO.
type Info map[string]string

// ReadInfo asks the server, which has the name node, for its INFO.
func ReadInfo(ctx context.Context, c Client, node string) (Info, error) {
	cmd := redis.NewStringCmd(ctx, "info")
	if err := c.Process(ctx, cmd); err != nil {
		return nil, forbidden(err, node, "+info")
	}
	info := Info{}
	for line := range strings.SplitSeq(cmd.Val(), "\r\n") {
		k, v, _ := strings.Cut(line, ":")
		info[k] = v
	}
	return info, nil
}

// Check refuses a server that is too old or no primary.
func (i Info) Check() error {
	var major, minor, oldest, least int
	v := i["redis_version"]
	_, _ = fmt.Sscanf(v, "%d.%d", &major, &minor) // what is no version is older than any
	_, _ = fmt.Sscanf(MinRedisVersion, "%d.%d", &oldest, &least)
	if major < oldest || major == oldest && minor < least {
		return fmt.Errorf("%w: version %q, want at least %s", backend.ErrServerTooOld, v, MinRedisVersion)
	}
	if role := i["role"]; role != "master" {
		return fmt.Errorf("%w: the server's role is %q, want a primary", backend.ErrUnavailable, role)
	}
	return nil
}

// forbidden returns the error of a command that needs the right.
func forbidden(err error, node, right string) error {
	if redis.HasErrorPrefix(err, "NOPERM") {
		return &backend.RightError{Node: node, Rights: []string{right}, Err: err}
	}
	return fmt.Errorf("%w: %s: %w", backend.ErrUnavailable, right[1:], err)
}

// granted is a script that returns those of the commands in ARGV that the user
// may not call. KEYS has a hash and a log, and the commands name them so.
const granted = `local missing = {}
for i = 1, #ARGV do
  local words = {}
  for word in string.gmatch(ARGV[i], '%S+') do
    words[#words + 1] = word == 'HASH' and KEYS[1] or word == 'LOG' and KEYS[2] or word
  end
  if not redis.acl_check_cmd(unpack(words)) then missing[#missing + 1] = i end
end
return missing`

// needed are the commands that the script calls.
var needed = []string{
	"TIME", "HGET HASH f", "HMGET HASH f", "HRANDFIELD HASH", "HSET HASH f v", "HDEL HASH f", "UNLINK HASH",
	"PTTL HASH", "PEXPIRE HASH 1",
	"ZADD LOG 1 m", "ZRANGE LOG 0 0", "ZCOUNT LOG 0 0", "ZCARD LOG", "ZREMRANGEBYRANK LOG 0 0",
}

// Rights checks that the client's user may load a script, run it on stored keys
// with that tag, and call the commands of the library's script, and more. A
// right that is missing is a *backend.RightError.
func Rights(ctx context.Context, c Client, node string, p wire.Prefix, tag string, more ...string) error {
	load := redis.NewStringCmd(ctx, "script", "load", granted)
	if err := c.Process(ctx, load); err != nil {
		return forbidden(err, node, "+script|load")
	}
	commands := append(slices.Clone(needed), more...)
	log := p.Log(tag, &Probe(PingKey).Policies[1])
	args := []any{"evalsha", load.Val(), 2, p.Hash(tag), log}
	for _, command := range commands {
		args = append(args, command)
	}
	cmd := redis.NewIntSliceCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	if err := c.Process(ctx, cmd); err != nil {
		if strings.Contains(err.Error(), " key") { // as Redis and Valkey word it since 7.0; mutant: key-pattern
			return forbidden(err, node, "~"+string(p)+"*")
		}
		return forbidden(err, node, "+evalsha")
	}
	if len(cmd.Val()) == 0 {
		return nil
	}
	missing := &backend.RightError{Node: node}
	for _, i := range cmd.Val() {
		missing.Rights = append(missing.Rights, right(commands[i-1]))
	}
	return missing
}

// right returns what grants a command: "CLUSTER SLOTS" needs "+cluster|slots".
func right(command string) string {
	words := strings.Fields(strings.ToLower(command))
	if words[0] == "cluster" {
		return "+" + words[0] + "|" + words[1]
	}
	return "+" + words[0]
}

// Evicts warns of a server that evicts keys when its memory is full.
func (i Info) Evicts() string {
	p := i["maxmemory_policy"]
	if i["maxmemory"] == "0" || p == "noeviction" || p == "" {
		return ""
	}
	return "maxmemory-policy is " + p +
		": an evicted key is a fresh quota; noeviction refuses instead, and the failure mode applies"
}

// PingKey is the key of Probe on one server.
const PingKey = "headgate-ping"

// Probe is a request as a call makes it, on a key of Ping's own. It has a
// policy that lies in a hash and one that lies in a sorted set. What it stores
// expires within seconds.
func Probe(key string) backend.Request {
	limit := algo.Per(algo.MaxLogLimit, algo.MinPeriod)
	return backend.Request{Op: backend.Take, Group: backend.Group{
		Key:  key,
		Cost: 1,
		Policies: []backend.Policy{
			{Name: "ping", Algorithm: algo.FixedWindow(limit), OnFailure: backend.FailClosed},
			{Name: "ping-log", Algorithm: algo.SlidingLog(limit), OnFailure: backend.FailClosed},
		},
	}}
}

// Slow warns of a round trip that takes, in the median of a few, over a quarter
// of the budget: then one slow moment spends the budget.
func Slow(ctx context.Context, c Client, node string, budget time.Duration) (warning string, err error) {
	var trips [5]time.Duration
	for i := range trips {
		begin := time.Now()
		if err := c.Process(ctx, redis.NewStatusCmd(ctx, "ping")); err != nil {
			return "", forbidden(err, node, "+ping")
		}
		trips[i] = time.Since(begin)
	}
	slices.Sort(trips[:])
	if m := trips[len(trips)/2]; m > budget/4 {
		return fmt.Sprintf("a round trip takes %v of a budget of %v", m, budget), nil
	}
	return "", nil
}
