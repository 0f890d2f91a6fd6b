package standalone_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/lua"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// unfit are servers that can't run the script: without one of its commands, or without a
// name that it uses. The reply of the latter is that of a server to a script that uses a
// name which it lacks.
var unfit = map[string]func(t *testing.T) (addr string){
	"EVALSHA": func(t *testing.T) string { return redistest.Start(t, "--rename-command", "EVALSHA", "").Addr() },
	"SCRIPT":  func(t *testing.T) string { return redistest.Start(t, "--rename-command", "SCRIPT", "").Addr() },
	"global": func(t *testing.T) string {
		server := redistest.Start(t)
		err := server.Client(t).Eval(t.Context(), "return strukt.pack('<d', 1)", nil).Err()
		require.ErrorContains(t, err, "on @user_script:", "as any error of a running script")
		return answering(t, server, strings.ReplaceAll(err.Error(), "strukt", "struct"))
	},
	"global of Lua 5.4": func(t *testing.T) string {
		return answering(t, redistest.Start(t), "ERR user_script:83: attempt to index a nil value (global 'struct')")
	},
	"load": func(t *testing.T) string {
		return answering(t, redistest.Start(t), "ERR Error compiling script (new function): user_script:1: too many local variables")
	},
}

// answering returns a server that answers each script, or its load, with an error.
func answering(t *testing.T, server *redistest.Server, reply string) (addr string) {
	proxy, loads := redistest.NewProxy(t, server.Addr()), strings.Contains(reply, "compiling")
	proxy.Rewrite(func(b []byte) []byte {
		switch loaded := bytes.Contains(b, []byte(lua.SHA)); {
		case loads && loaded, !loads && b[0] == '$' && !loaded:
			return []byte("-" + reply + "\r\n")
		case loads && b[0] == '$': // the real server has it all the same
			return []byte("-NOSCRIPT No matching script.\r\n")
		}
		return b
	})
	return proxy.Addr()
}

// TestUnfitServer: a server that can't run the script has counted nothing, opens no circuit,
// and is logged once, whatever the failure mode.
func TestUnfitServer(t *testing.T) {
	for what, start := range unfit {
		t.Run(what, func(t *testing.T) {
			logged := &faulttest.Log{}
			client := redis.NewClient(&redis.Options{Addr: start(t)})
			t.Cleanup(func() { _ = client.Close() })
			l, err := headgate.New(standalone.New(client, unhurried), []headgate.Policy{wide}, &headgate.Options{
				Logger: slog.New(slog.NewTextHandler(logged, nil))})
			require.NoError(t, err)
			open, err := l.OnFailure(headgate.FailOpen)
			require.NoError(t, err)
			for range 15 {
				for _, l := range []*headgate.Limiter{open, l} {
					d, err := l.Allow(t.Context(), "k")
					require.NoError(t, err)
					require.ErrorIs(t, d.Err, headgate.ErrUnavailable)
					require.NotErrorIs(t, d.Err, headgate.ErrPerhapsCounted)
					var unfit *backend.ScriptError
					require.ErrorAs(t, d.Err, &unfit)
					require.Equal(t, client.Options().Addr, unfit.Node)
				}
			}
			require.Equal(t, map[string]string{client.Options().Addr: "closed"}, l.Stats().Circuits)
			require.Len(t, logged.Lines(), 1)
			require.Contains(t, logged.Lines()[0], "level=ERROR")
			require.Contains(t, logged.Lines()[0], client.Options().Addr)
		})
	}
}
