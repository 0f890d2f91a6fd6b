package peers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/internal/lab/redistest"
)

func TestMemoryLimits(t *testing.T) {
	ours := []Maker{
		HeadgateMemory("headgate", nil),
	}
	for _, m := range append(ours, Memory()...) {
		t.Run(m.Name, func(t *testing.T) {
			if err := Check(m, 1, "check:"+t.Name()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRedisLimits(t *testing.T) {
	server := redistest.Start(t)
	dial := Own(server.Addr())
	check(t, []Maker{
		Headgate(dial, 1), Headgate(dial, 3), RedisRate(dial), RedisRateThree(dial),
		Plain(dial), Rueidis(server.Addr()), Headgate(Shared(server.Client(t)), 1), Plain(Shared(server.Client(t))),
	})
}

func TestClusterLimits(t *testing.T) {
	addrs := redistest.StartCluster(t).Addrs()
	check(t, []Maker{HeadgateCluster(addrs), RedisRateCluster(addrs)})
}

// check asks two limiters on one count by turns.
func check(t *testing.T, makers []Maker) {
	for _, m := range makers {
		t.Run(m.Name, func(t *testing.T) {
			if err := Check(m, 2, "check:"+t.Name()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A limiter that lets one too many pass, one that counts alone, and one that
// can't answer must all be refused.
func TestCheckRefuses(t *testing.T) {
	off := func(by int) Maker {
		return Maker{"off", Peer, func(l Limit) (*Subject, error) {
			l.Burst += by
			return GoLimiter.Make(l)
		}}
	}
	broken := Maker{"broken", Floor, func(Limit) (*Subject, error) {
		return plain(func(context.Context, string) load.Answer { return load.Failed }), nil
	}}
	for name, err := range map[string]error{
		"one too many": Check(off(1), 1, "k"), "one too few": Check(off(-1), 1, "k"),
		"each for itself": Check(GoLimiter, 2, "k"), "no answer": Check(broken, 2, "k"),
	} {
		if err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// What is filled is counted: the fastest fill is one that does nothing.
func TestFillTakes(t *testing.T) {
	small := Limit{Rate: 1, Period: time.Hour, Burst: 11, Window: time.Hour, Fill: 10}
	dial := Own(redistest.Start(t).Addr())
	for _, m := range []Maker{HeadgateMemory("memory", nil), throttledMemory, Headgate(dial, 1), RedisRate(dial)} {
		s, err := m.Make(small)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for try := 0; try < 50 && s.Allow(t.Context(), fmt.Sprint("connects ", try)) != load.Passed; try++ { // on a busy machine the first call may fail
			time.Sleep(10 * time.Millisecond)
		}
		if a := s.Fill(t.Context(), "fill"); a != load.Passed {
			t.Errorf("%s: fill got %d", m.Name, a)
		}
		if a, b := s.Allow(t.Context(), "fill"), s.Allow(t.Context(), "fill"); a != load.Passed || b != load.Denied {
			t.Errorf("%s: after the fill %d and %d, want one more to pass", m.Name, a, b)
		}
	}
}
