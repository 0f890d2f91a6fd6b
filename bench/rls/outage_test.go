package rls

import (
	"context"
	"strconv"
	"testing"
	"time"
)

// A Redis that freezes, and one that is killed: how long a request takes meanwhile, and
// until requests are limited again.
func TestOutage(t *testing.T) {
	reference, headgated := both(t, map[string]string{"cost": costLimits})
	for _, s := range []*service{reference, headgated} {
		worst := s.during(t, s.redis.Stop)
		s.redis.Cont()
		t.Logf("%s: with a frozen Redis a request took up to %v, served again after %v", s.name, worst, s.back(t))
		worst = s.during(t, s.redis.Kill)
		s.redis.Restart(t)
		t.Logf("%s: with a killed Redis a request took up to %v, served again after %v", s.name, worst, s.back(t))
	}
}

// ask returns how long a request took, and whether it was decided.
func (s *service) ask(value string) (time.Duration, bool) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	w := workload{key: "one"}
	_, err := s.client.ShouldRateLimit(ctx, withValue(w, value))
	return time.Since(begin), err == nil
}

// during returns the longest of some requests after the store was broken.
func (s *service) during(t testing.TB, breakIt func()) (worst time.Duration) {
	t.Helper()
	s.ask("before")
	breakIt()
	for i := range 3 {
		took, ok := s.ask(strconv.Itoa(i))
		if ok {
			t.Errorf("%s: decided without a store", s.name)
		}
		worst = max(worst, took)
	}
	return worst
}

// back returns the time until a request is decided again.
func (s *service) back(t testing.TB) time.Duration {
	t.Helper()
	begin := time.Now()
	for time.Since(begin) < time.Minute {
		if _, ok := s.ask("after"); ok {
			return time.Since(begin)
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%s: not served again", s.name)
	return 0
}
