package peers

import (
	"context"
	"fmt"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/bench/load"
	"github.com/redis/go-redis/v9"
)

// HeadgateMemory has one policy on the store in this process.
func HeadgateMemory(name string, opts *headgate.Options) Maker {
	return Maker{name, Ours, func(l Limit) (*Subject, error) {
		return headgateOn(memory.New(nil), policies(1, l), l, opts)
	}}
}

// Headgate has n policies on one Redis server.
func Headgate(dial Dial, n int) Maker {
	return Maker{"headgate", Ours, func(l Limit) (*Subject, error) {
		client, hangUp := dial()
		s, err := headgateOn(standalone.New(client, nil), policies(n, l), l, nil)
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

// policies are token buckets, to which a GCRA limiter compares. They fail
// closed: a call that the store did not decide must not look like a pass.
func policies(n int, l Limit) []headgate.Policy {
	a := algo.TokenBucket(algo.Per(int64(l.Rate), l.Period), int64(l.Burst))
	all := make([]headgate.Policy, n)
	for i := range all {
		all[i] = headgate.Policy{Name: fmt.Sprintf("p%d", i), Algorithm: a, OnFailure: headgate.FailClosed}
	}
	return all
}

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

// decided: what a failure mode answered is not a decision, what the deny cache
// answered is one.
func decided(d headgate.Decision, err error) load.Answer {
	switch d.Source {
	case headgate.FromFailOpen, headgate.FromFailClosed, headgate.FromFailLocal:
		return load.Failed
	}
	return answer(d.Allowed, err)
}

// closing adds to what is closed with s, which may be nil.
func closing(s *Subject, also func()) *Subject {
	if s == nil {
		also()
		return nil
	}
	first := s.Close
	s.Close = func() { first(); also() }
	return s
}
