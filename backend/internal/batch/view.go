package batch

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// view sends on the user's connections and through the user's hooks, with
// deadlines of our own. The client's settings stay as they are: by go-redis'
// defaults a lost reply holds its connection for three seconds, whatever the
// context says.
type view struct {
	*redis.Conn               // has the hooks that the client had when it was made
	made        time.Duration // as now
}

// renewal is how long a view is used. A hook that is added to the client later is
// in the next one.
const renewal = time.Second

// newView returns a view of a client. WithTimeout alone would leave the hooks out,
// and Conn alone would keep the client's timeouts.
func newView(user *redis.Client, budget time.Duration) *view {
	bounded := user.WithTimeout(budget)
	bounded.Options().ContextTimeoutEnabled = true // an option of its own
	conn := user.Conn()                            // takes no connection before its first command
	conn.AddHook(through{bounded})                 // mutant: connection-deadlines
	return &view{conn, now()}
}

// through is the innermost hook of a view, which sends.
type through struct{ client *redis.Client }

func (t through) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t through) ProcessHook(redis.ProcessHook) redis.ProcessHook { return t.client.Process }

func (t through) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p := t.client.Pipeline()
		if err := p.BatchProcess(ctx, cmds...); err != nil {
			return err
		}
		_, err := p.Exec(ctx)
		return err
	}
}
