package script

import (
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// prompt is about trips that are made on their caller's goroutine: two
// goroutines less to wake, which is a third of a lone call's time where the
// processor sleeps between two of them. The caller gets away only when the
// client returns, so the client has to keep the deadline, and no code but
// go-redis' may run in it.
type prompt struct {
	view Client       // the user's client as one that keeps deadlines; nil: it can't be had
	seen atomic.Int64 // as Now: when nothing but go-redis was last seen to run; 0: never
	next atomic.Int64 // as Now: when to look again
}

// look is how often a trip on a goroutine of its own looks for hooks: the user
// may add one at any time.
const look = time.Second

// Prompt reports whether a trip that begins now may be made on its caller's
// goroutine.
func (s *Server) Prompt(now time.Duration) bool {
	seen := s.prompt.seen.Load()
	return seen != 0 && now-time.Duration(seen) < look
}

// bounded returns the client's view on the same connections that returns when
// its context's deadline has passed. It runs no hooks. It is nil for clients
// of other makes, and where the user's own code dials (Sentinel's is such),
// greets, or fetches credentials.
func bounded(c Client, budget time.Duration) Client {
	user, ok := c.(*redis.Client)
	if !ok || user == nil {
		return nil
	}
	o := user.Options()
	if o.OnConnect != nil || o.Limiter != nil || o.CredentialsProvider != nil || o.CredentialsProviderContext != nil ||
		o.StreamingCredentialsProvider != nil || !plain(reflect.ValueOf(o.Dialer).Pointer()) {
		return nil
	}
	view := user.WithTimeout(budget)
	view.Options().ContextTimeoutEnabled = true // the view's own, not the user's
	return view
}

const goRedis = "github.com/redis/go-redis/v9"

// plain reports whether the dialer is the one that go-redis fills in where the
// user names none.
func plain(dialer uintptr) bool {
	f := runtime.FuncForPC(dialer)
	return f != nil && (strings.HasPrefix(f.Name(), goRedis+".") && strings.Contains(f.Name(), "NewDialer.func") ||
		strings.Contains(f.Name(), "internal/script.quietDefault.func"))
}

// notice looks at the goroutine that writes a command: hooks stand on its
// stack, between go-redis and the trip. Where there are some, too, it looks once
// a second: to walk a stack at each command would cost more than to pack it.
func (s *Server) notice(now time.Duration) {
	next := s.prompt.next.Load()
	if s.prompt.view == nil || int64(now) < next || !s.prompt.next.CompareAndSwap(next, int64(now+look)) {
		return
	}
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	inside := false
	for {
		f, more := frames.Next()
		switch own := strings.HasPrefix(f.Function, goRedis+".") || strings.HasPrefix(f.Function, goRedis+"/"); {
		case own:
			inside = true
		case inside && strings.Contains(f.Function, "internal/script.process"):
			s.prompt.seen.Store(int64(now))
			return
		case inside || !more:
			return
		}
	}
}
