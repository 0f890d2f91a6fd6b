package peers

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/bench/load"
	"github.com/redis/go-redis/v9"
)

// HeadgateMemory has one policy on a new memory store for each subject.
func HeadgateMemory(name string, opts *headgate.Options) Maker {
	return Maker{name, Ours, func(l Limit) (*Subject, error) {
		return headgateOn(memory.New(nil), policies(1, l), l, opts)
	}}
}

// Headgate has n policies on one Redis server, with the defaults of the store
// and of the limiter, so the deny cache is on. Under Roomy nothing is denied,
// so it answers nothing.
func Headgate(dial Dial, n int) Maker {
	return Maker{"headgate", Ours, func(l Limit) (*Subject, error) {
		client, hangUp := dial()
		s, err := headgateOn(standalone.New(client, nil), policies(n, l), l, nil)
		return closing(s, hangUp), err
	}}
}

// Opened has one policy on one Redis server, with the client that Open makes.
func Opened(addr string) Maker {
	return Maker{"headgate, by Open", Ours, func(l Limit) (*Subject, error) {
		store, err := standalone.Open("redis://"+addr, nil)
		if err != nil {
			return nil, err
		}
		return headgateOn(store, policies(1, l), l, nil)
	}}
}

// Borrowing has one policy on one Redis server, of which a process holds units for a time.
func Borrowing(dial Dial, length time.Duration) Maker {
	return Maker{fmt.Sprint("headgate, borrowing for ", length), Ours, func(l Limit) (*Subject, error) {
		client, hangUp := dial()
		s, err := headgateOn(standalone.New(client, nil), policies(1, l), l, &headgate.Options{Borrow: length})
		return closing(s, hangUp), err
	}}
}

// HeadgateCluster has one policy on a Redis Cluster.
func HeadgateCluster(addrs []string) Maker {
	return Maker{"headgate", Ours, func(l Limit) (*Subject, error) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		s, err := headgateOn(cluster.New(client, nil), policies(1, l), l, nil)
		return closing(s, func() { _ = client.Close() }), err
	}}
}

// policies are token buckets, since redis_rate and throttled are GCRA. They
// fail closed: a call that the store did not decide must not look like a pass.
func policies(n int, l Limit) []headgate.Policy {
	a := algo.TokenBucket(algo.Per(int64(l.Rate), l.Period), int64(l.Burst))
	all := make([]headgate.Policy, n)
	for i := range all {
		all[i] = headgate.Policy{Name: fmt.Sprintf("p%d", i), Algorithm: a, OnFailure: headgate.FailClosed}
	}
	return all
}

// headgateOn takes over the store: it closes it with the subject.
func headgateOn(s backend.Store, ps []headgate.Policy, limit Limit, opts *headgate.Options) (*Subject, error) {
	l, err := headgate.New(s, ps, opts)
	if err != nil {
		return nil, err
	}
	return &Subject{
		Allow: func(ctx context.Context, key string) load.Answer { return decided(l.Allow(ctx, key)) },
		Fill: func(ctx context.Context, key string) load.Answer {
			return decided(l.AllowN(ctx, key, int64(limit.Fill)))
		},
		Close: func() { _ = s.Close() },
	}, nil
}

// decided converts a decision. What a failure mode answered counts as failed.
// What the deny cache answered is a decision, as the store made it a moment
// ago.
func decided(d headgate.Decision, err error) load.Answer {
	switch d.Source {
	case headgate.FromFailOpen, headgate.FromFailClosed, headgate.FromFailLocal:
		return load.Failed
	}
	return answer(d.Allowed, err)
}

// closing adds to what is closed with s. If s is nil, since it could not be
// made, it closes at once.
func closing(s *Subject, also func()) *Subject {
	if s == nil {
		also()
		return nil
	}
	first := s.Close
	s.Close = func() { first(); also() }
	return s
}
