package peers

import (
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

// Algorithm makes a limit one of Headgate's.
type Algorithm func(Limit) algo.Algorithm

// TokenBucket is what a GCRA limiter compares to.
func TokenBucket(l Limit) algo.Algorithm {
	return algo.TokenBucket(algo.Per(int64(l.Rate), l.Period), int64(l.Burst))
}

// SlidingWindow is what a limiter by windows compares to.
func SlidingWindow(l Limit) algo.Algorithm {
	return algo.SlidingWindow(algo.Per(int64(l.Burst), Window))
}

// HeadgateMemory has one policy on the store in this process, which keeps at
// most so many keys; 0 is the default.
func HeadgateMemory(name string, a Algorithm, maxKeys int) Maker {
	return HeadgateMany(name, a, maxKeys, 1)
}

// HeadgateMany is HeadgateMemory with n policies.
func HeadgateMany(name string, a Algorithm, maxKeys, n int) Maker {
	return Maker{name, Ours, func(l Limit) (*Subject, error) {
		return headgateOn(memory.New(&memory.Options{MaxKeys: maxKeys}), policies(n, a(l)))
	}}
}

// Headgate has n policies on one Redis server.
func Headgate(dial Dial, n int) Maker {
	return Maker{"headgate", Ours, func(l Limit) (*Subject, error) {
		client, hangUp := dial()
		s, err := headgateOn(standalone.New(client, nil), policies(n, TokenBucket(l)))
		return closing(s, hangUp), err
	}}
}

// HeadgateCluster has one policy on a Redis Cluster.
func HeadgateCluster(addrs []string) Maker {
	return Maker{"headgate", Ours, func(l Limit) (*Subject, error) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		s, err := headgateOn(cluster.New(client, nil), policies(1, TokenBucket(l)))
		return closing(s, func() { _ = client.Close() }), err
	}}
}

// policies fail closed: a call that the store did not decide must not look
// like one that it let pass.
func policies(n int, a algo.Algorithm) []headgate.Policy {
	all := make([]headgate.Policy, n)
	for i := range all {
		all[i] = headgate.Policy{Name: fmt.Sprintf("p%d", i), Algorithm: a, OnFailure: headgate.FailClosed}
	}
	return all
}

func headgateOn(s backend.Store, ps []headgate.Policy) (*Subject, error) {
	l, err := headgate.New(s, ps, nil)
	if err != nil {
		return nil, err
	}
	return &Subject{
		Allow: func(key string) load.Answer { return decided(l.Allow(ctx, key)) },
		Fill:  func(key string) load.Answer { return decided(l.AllowN(ctx, key, fill)) },
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
