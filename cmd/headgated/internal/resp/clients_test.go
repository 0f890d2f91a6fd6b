package resp_test

import (
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/cmd/headgated/internal/resp"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// TestGoClients runs clients in Go as people make them, with and without a password: each is
// admitted, takes a unit, and has none taken by a transaction.
func TestGoClients(t *testing.T) {
	for _, password := range []string{"", "secret"} {
		for name, run := range map[string]func(testing.TB, string, string) (left any, transaction error){
			"go-redis": viaGoRedis, "redigo": viaRedigo, "rueidis": viaRueidis,
		} {
			t.Run(name+" "+password, func(t *testing.T) {
				_, addr := start(t, memory.New(nil), func(o *resp.Options) { o.Password = func() string { return password } })
				left, transaction := run(t, addr, password)
				require.EqualValues(t, 4, left)
				require.Regexp(t, "EXECABORT|not run", transaction.Error())
				left, _ = run(t, addr, password)
				require.EqualValues(t, 3, left, "the transaction took nothing")
			})
		}
	}
}

func viaGoRedis(t testing.TB, addr, password string) (any, error) {
	c := goredis.NewClient(&goredis.Options{Addr: addr, Password: password})
	defer func() { _ = c.Close() }()
	got, err := c.Do(ctx, "HG.TAKE", "free", "k").Slice()
	require.NoError(t, err)
	pipe := c.TxPipeline()
	take := pipe.Do(ctx, "HG.TAKE", "free", "k")
	_, err = pipe.Exec(ctx)
	require.ErrorContains(t, take.Err(), "not run")
	return got[3], err
}

func viaRedigo(t testing.TB, addr, password string) (any, error) {
	c, err := redis.Dial("tcp", addr, redis.DialPassword(password), redis.DialClientName("app"))
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	got, err := redis.Values(c.Do("HG.TAKE", "free", "k"))
	require.NoError(t, err)
	require.NoError(t, c.Send("MULTI"))
	require.NoError(t, c.Send("HG.TAKE", "free", "k"))
	_, err = c.Do("EXEC")
	return got[3], err
}

func viaRueidis(t testing.TB, addr, password string) (any, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, Password: password, ClientName: "app"})
	require.NoError(t, err)
	defer c.Close()
	got, err := c.Do(ctx, c.B().Arbitrary("HG.TAKE").Args("free", "k").Build()).ToArray()
	require.NoError(t, err)
	left, err := got[3].AsInt64()
	require.NoError(t, err)
	one, cancel := c.Dedicate()
	defer cancel()
	answers := one.DoMulti(ctx, one.B().Multi().Build(), one.B().Arbitrary("HG.TAKE").Args("free", "k").Build(), one.B().Exec().Build())
	require.ErrorContains(t, answers[1].Error(), "not run")
	return left, answers[2].Error()
}

// TestOtherClients runs clients of other languages, if they are installed as Debian packages
// are: python3-redis, node-redis, redis-tools.
func TestOtherClients(t *testing.T) {
	for name, c := range map[string]struct {
		installed, command []string
		want               string
	}{
		"redis-py": {[]string{"/usr/bin/python3", "-c", "import redis"}, []string{"/usr/bin/python3", "-c", `
import redis, sys
c = redis.Redis(port=int(sys.argv[1]), password=sys.argv[2], client_name="app")
print(c.execute_command("HG.TAKE", "free", "k")[3], c.info()["role"], c.ping(), c.echo("x"))
pipe = c.pipeline()
pipe.execute_command("HG.TAKE", "free", "k")
try:
    print(pipe.execute())
except redis.exceptions.RedisError as e:
    print(e)
pipe = c.pipeline(transaction=False)
pipe.execute_command("HG.TAKE", "free", "k")
print(pipe.execute()[0][3])
`}, "4 master True b'x'\nCommand # 1 (HG.TAKE free k) of pipeline caused error: there are no transactions: the command was not run\n3\n"},
		"node-redis": {[]string{"/usr/bin/node", "-e", "require('redis')"}, []string{"/usr/bin/node", "-e", `
const c = require('redis').createClient({url: 'redis://:' + process.argv[2] + '@127.0.0.1:' + process.argv[1], name: 'app'});
(async () => {
  await c.connect();
  console.log((await c.sendCommand(['HG.TAKE', 'free', 'k']))[3], await c.ping());
  try { console.log(await c.multi().addCommand(['HG.TAKE', 'free', 'k']).exec()) } catch (e) { console.log(e.message) }
  console.log((await c.sendCommand(['HG.TAKE', 'free', 'k']))[3]);
  await c.quit();
})()`}, "4 PONG\nERR there are no transactions: the command was not run\n3\n"},
		"redis-cli": {[]string{"/usr/bin/redis-cli", "--version"}, []string{"/bin/sh", "-c", `
redis-cli -3 --no-auth-warning -p "$0" -a "$1" HG.TAKE free k | sed -n 4p
printf 'MULTI\nHG.TAKE free k\nEXEC\n' | redis-cli --no-auth-warning -p "$0" -a "$1"
redis-cli --no-auth-warning -p "$0" -a "$1" HG.TAKE free k | sed -n 4p`}, "4\nOK\nERR there are no transactions: the command was not run\n\nEXECABORT Transaction discarded because of previous errors.\n\n3\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NODE_PATH", "/usr/share/nodejs")
			if out, err := exec.Command(c.installed[0], c.installed[1:]...).CombinedOutput(); err != nil {
				if os.Getenv("CI") == "true" {
					t.Fatalf("%v: %s", err, out)
				}
				t.Skipf("not installed: %v", err)
			}
			_, addr := start(t, memory.New(nil), func(o *resp.Options) { o.Password = func() string { return "secret" } })
			_, port, err := net.SplitHostPort(addr)
			require.NoError(t, err)
			cmd := exec.Command(c.command[0], append(c.command[1:], port, "secret")...)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			require.Equal(t, c.want, string(out))
		})
	}
}
