package standalone_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestPingNamesTheCause, also once it has opened the circuit; and Ping finds nothing amiss
// when it is gone, while the circuit is still open.
func TestPingNamesTheCause(t *testing.T) {
	set := func(t *testing.T, c *redis.Client, name, value string) {
		require.NoError(t, c.ConfigSet(t.Context(), name, value).Err())
	}
	for cause, begin := range map[string]func(t *testing.T, c *redis.Client) (end func()){
		"OOM": func(t *testing.T, c *redis.Client) func() {
			set(t, c, "maxmemory", "1")
			return func() { set(t, c, "maxmemory", "0") }
		},
		"NOREPLICAS": func(t *testing.T, c *redis.Client) func() {
			set(t, c, "min-replicas-to-write", "1")
			return func() { set(t, c, "min-replicas-to-write", "0") }
		},
		"MISCONF": func(t *testing.T, c *redis.Client) func() {
			require.NoError(t, os.RemoveAll(c.ConfigGet(t.Context(), "dir").Val()["dir"]))
			set(t, c, "save", "3600 1000000")
			require.NoError(t, c.BgSave(t.Context()).Err())
			require.Eventually(t, func() bool {
				return strings.Contains(c.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
			}, 10*time.Second, time.Millisecond)
			return func() { set(t, c, "save", "") }
		},
	} {
		t.Run(cause, func(t *testing.T) {
			client := redistest.Start(t).Client(t)
			l := limiter(t, client, unhurried, wide)
			end := begin(t, client)
			for l.Stats().Circuits[client.Options().Addr] != "open" {
				d, err := l.Allow(t.Context(), "k")
				require.NoError(t, err)
				require.ErrorContains(t, d.Err, cause)
			}
			_, err := l.Ping(t.Context())
			require.ErrorIs(t, err, headgate.ErrUnavailable)
			require.ErrorContains(t, err, cause)
			require.ErrorContains(t, err, client.Options().Addr)
			end()
			_, err = l.Ping(t.Context())
			require.NoError(t, err)
			require.Zero(t, client.DBSize(t.Context()).Val(), "the trial request leaves nothing")
		})
	}
}

// TestPingNamesRemovedCommands: one that rename-command has taken away is named, whether
// Ping sends it or the script calls it, and whatever the circuit's state.
func TestPingNamesRemovedCommands(t *testing.T) {
	for _, commands := range [][]string{{"INFO"}, {"EVALSHA"}, {"SCRIPT"}, {"HSET"}, {"TIME"}, {"PEXPIRE", "ZADD"}} {
		t.Run(strings.Join(commands, " "), func(t *testing.T) {
			var args []string
			for _, command := range commands {
				args = append(args, "--rename-command", command, "")
			}
			server := redistest.Start(t, args...)
			l := limiter(t, server.Client(t), unhurried, wide)
			for range 10 {
				_, err := l.Allow(t.Context(), "k")
				require.NoError(t, err)
				_, err = l.Ping(t.Context())
				require.ErrorIs(t, err, headgate.ErrUnavailable)
				require.ErrorContains(t, err, server.Addr()+" has no command "+strings.Join(commands, ", ")+" (see rename-command)")
			}
		})
	}
}
