package peers

import (
	"sync"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/redis/go-redis/v9"
)

// least is what a limiter does of each key at the least that keeps its counts
// in Redis, gives them an expiry, and decides many keys in one script: it reads
// a value and writes one.
const least = `for i = 1, #KEYS do
  local v = redis.call('HGET', KEYS[i], 'q')
  redis.call('HSET', KEYS[i], 'q', ARGV[1])
  if not v then redis.call('PEXPIRE', KEYS[i], 3600000) end
end
return 1`

// As many calls share a script as of Headgate's with 512 callers, and as many
// scripts are out.
const (
	flightCalls = 130
	flightsOut  = 3
)

// Flights is a floor for all that shares round trips: nothing is decided, and
// nobody waits for an answer but who sends the calls of the others.
func Flights(dial Dial) Maker {
	return Maker{"HGET and HSET, in flights", Floor, func(Limit) (*Subject, error) {
		client, hangUp := dial()
		sha, err := client.ScriptLoad(ctx, least).Result()
		f := &flights{client: client, sha: sha, out: make(chan struct{}, flightsOut)}
		f.gather()
		return closing(plain(f.call), hangUp), err
	}}
}

type flights struct {
	client redis.UniversalClient
	sha    string
	out    chan struct{}

	mu struct {
		sync.Mutex
		calls int
		keys  map[string]struct{}
	}
}

func (f *flights) gather() { f.mu.calls, f.mu.keys = 0, make(map[string]struct{}, flightCalls) }

func (f *flights) call(key string) load.Answer {
	f.mu.Lock()
	f.mu.keys[key] = struct{}{}
	f.mu.calls++
	if f.mu.calls < flightCalls {
		f.mu.Unlock()
		return load.Passed
	}
	full := f.mu.keys
	f.gather()
	f.mu.Unlock()
	return f.send(full)
}

func (f *flights) send(calls map[string]struct{}) load.Answer {
	keys := make([]string, 0, len(calls))
	for key := range calls {
		keys = append(keys, "flights:"+key)
	}
	f.out <- struct{}{}
	defer func() { <-f.out }()
	return answer(true, f.client.EvalSha(ctx, f.sha, keys, "0123456789abcdef").Err())
}
