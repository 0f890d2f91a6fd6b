package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/peers"
)

// scriptWorkloads are what a lone call's EVALSHA takes of the server, by INFO commandstats. One is
// on a key that is there, one on new keys.
func scriptWorkloads() []workload {
	var all []workload
	for _, of := range []struct {
		keys string
		key  func(turn, call int) string
	}{
		{"known", func(int, int) string { return "script" }},
		{"new", func(turn, call int) string { return fmt.Sprint("script:", turn, ":", call) }},
	} {
		w := onServer("script/"+of.keys, "hot", 1, 1)
		w.subjects, w.turn, w.fill = scripts, onScript(of.key), 0
		time := metric(scriptTime, within(1.1, redisRate), published(bareScript))
		w.metrics = append(w.metrics[:0], time)
		all = append(all, w)
	}
	return all
}

func scripts(b *bench) []peers.Maker {
	dial := peers.Own(b.addr())
	return []peers.Maker{peers.Headgate(dial, 1), peers.RedisRate(dial), peers.Plain(dial)}
}

// onScript is one caller who calls the keys that key returns.
func onScript(key func(turn, call int) string) turn {
	return func(b *bench, s *subject) (figures, error) {
		s.Allow(ctx, "script") // the script is loaded, and the key is there
		if err := b.admin.ConfigResetStat(ctx).Err(); err != nil {
			return figures{}, err
		}
		var sample load.Sample
		begin := time.Now()
		for call := 0; time.Since(begin) < b.length; call++ {
			sample.Count[s.Allow(ctx, key(s.run, call))]++
		}
		_, spent, _ := strings.Cut(b.info("commandstats", "cmdstat_evalsha"), "usec_per_call=")
		spent, _, _ = strings.Cut(spent, ",")
		us, err := strconv.ParseFloat(spent, 64)
		if err != nil {
			return figures{}, err
		}
		failed, err := s.undecided(&sample)
		return figures{map[string]float64{scriptTime: us}, failed}, err
	}
}
