package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// envoyBinary returns the proxy's path: that of the variable ENVOY, or the one on PATH.
func envoyBinary(t testing.TB) string {
	t.Helper()
	bin, err := exec.LookPath(cmp.Or(os.Getenv("ENVOY"), "envoy"))
	if err != nil {
		t.Skipf("NOT TESTED: no Envoy (%v); set ENVOY to its path, or put it on PATH", err)
	}
	return bin
}

// proxy is a running Envoy. Its two listeners differ in failure_mode_deny.
type proxy struct {
	cmd         *exec.Cmd
	admin       string
	allow, deny string // addresses
}

// upTo returns the numbers below n.
func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// startEnvoy runs an Envoy before a rate limit service and an upstream.
func startEnvoy(t testing.TB, service, upstream string, timeout time.Duration) *proxy {
	t.Helper()
	bin, dir := envoyBinary(t), t.TempDir()
	var config bytes.Buffer
	require.NoError(t, template.Must(template.ParseFiles("testdata/envoy.yaml.tmpl")).Execute(&config, map[string]any{
		"Listeners": map[string]bool{"allow": false, "deny": true}, "ServicePort": portOf(t, service), "UpstreamPort": portOf(t, upstream),
		"Timeout": fmt.Sprintf("%.3fs", timeout.Seconds()), "Many": upTo(65), "Seventeen": upTo(17),
	}))
	file, admin := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "admin")
	require.NoError(t, os.WriteFile(file, config.Bytes(), 0o600))
	cmd := exec.Command(bin, "-c", file, "--admin-address-path", admin, "--concurrency", "1", "--disable-hot-restart", "-l", "warning")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("envoy: %s", log.String())
		}
	})
	p := &proxy{cmd: cmd}
	require.Eventually(t, func() bool { return p.find(admin) }, 60*time.Second, 50*time.Millisecond, "Envoy does not listen")
	return p
}

func portOf(t testing.TB, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	return port
}

// find asks the admin interface for the ports that the listeners were given.
func (p *proxy) find(file string) bool {
	address, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	p.admin = string(address)
	resp, err := http.Get("http://" + p.admin + "/listeners?format=json")
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	var all struct {
		Listeners []struct {
			Name    string `json:"name"`
			Address struct {
				Socket struct {
					Port int `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if json.NewDecoder(resp.Body).Decode(&all) != nil {
		return false
	}
	for _, l := range all.Listeners {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(l.Address.Socket.Port))
		if l.Name == "deny" {
			p.deny = address
		} else {
			p.allow = address
		}
	}
	return p.allow != "" && p.deny != ""
}

// answer is what a client of the proxy got.
type answer struct {
	status int
	header http.Header
	took   time.Duration
}

// limits returns the X-RateLimit fields without the seconds of the reset.
func (a answer) limits() string {
	return strings.Join([]string{a.header.Get("X-Ratelimit-Limit"), a.header.Get("X-Ratelimit-Remaining")}, " | ")
}

// requireReset checks X-RateLimit-Reset: the seconds until the window of a unit ends, which
// begins at a multiple of it. The answer may be a second old.
func (a answer) requireReset(t testing.TB, unit int64) {
	t.Helper()
	s, err := strconv.ParseInt(a.header.Get("X-Ratelimit-Reset"), 10, 64)
	require.NoError(t, err)
	left := unit - time.Now().Unix()%unit
	late := (s - left + unit) % unit // the window may have ended since
	require.LessOrEqual(t, late, int64(10), "reset %d, %d s of the window are left", s, left)
	require.True(t, s >= 0 && s <= unit, "reset %d", s)
}

// get sends a request through the proxy. headers are "name: value".
func get(t testing.TB, address, path string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+address+path, nil)
	require.NoError(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	begin := time.Now()
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, time.Since(begin)}
}

// startUpstream answers each request, with the tokens that the request says it will use.
func startUpstream(t testing.TB) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := r.Header.Get("X-Use"); n != "" {
			w.Header().Set("X-Tokens", n)
		}
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

const envoyLimits = `
domain: envoy
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: path, value: two, rate_limit: {unit: day, requests_per_unit: 100}}
  - {key: many, rate_limit: {unit: day, requests_per_unit: 100}}
  - {key: route, value: '/orders/*/lines', share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: over, rate_limit: {unit: hour, requests_per_unit: 50}}
  - {key: tokens, rate_limit: {unit: day, requests_per_unit: 10000}}
`

// A real Envoy before headgated before a real Redis.
func TestEnvoy(t *testing.T) {
	envoyBinary(t)
	t.Parallel()
	redis := redistest.Start(t)
	s := startServer(t, envoyLimits, "-redis", "redis://"+redis.Addr())
	p := startEnvoy(t, s.grpcAddr(), startUpstream(t), 5*time.Second) // longer than the budget

	t.Run("a limit per header", func(t *testing.T) {
		for i, left := range []string{"2", "1", "0"} {
			a := get(t, p.allow, "/header", "x-user: a")
			require.Equal(t, 200, a.status, i)
			require.Equal(t, "3, 3;w=3600 | "+left, a.limits())
			a.requireReset(t, 3600)
		}
		a := get(t, p.allow, "/header", "x-user: a")
		require.Equal(t, 429, a.status)
		require.Equal(t, "3, 3;w=3600 | 0", a.limits())
		a.requireReset(t, 3600)
		require.Equal(t, 200, get(t, p.allow, "/header", "x-user: b").status)
		require.Equal(t, "", get(t, p.allow, "/header").header.Get("X-Ratelimit-Limit"), "no header, no descriptor")
	})

	t.Run("a header that is no UTF-8", func(t *testing.T) {
		for _, want := range []int{200, 200, 200, 429} {
			require.Equal(t, want, get(t, p.allow, "/header", "x-user: \xff\xfe").status)
		}
		require.Equal(t, 200, get(t, p.allow, "/header", "x-user: \xff\xfd").status, "another value")
	})

	t.Run("two descriptors", func(t *testing.T) {
		for _, left := range []string{"2", "1", "0"} {
			a := get(t, p.allow, "/two", "x-user: c")
			require.Equal(t, 200, a.status)
			require.Equal(t, "3, 3;w=3600, 100;w=86400 | "+left, a.limits())
			a.requireReset(t, 3600)
		}
		denied := get(t, p.allow, "/two", "x-user: c")
		require.Equal(t, 429, denied.status)
		denied.requireReset(t, 3600)
		// The denied one was charged to none: three of a hundred are used.
		a := get(t, p.allow, "/path")
		require.Equal(t, "100, 100;w=86400 | 96", a.limits())
		a.requireReset(t, 86400)
	})

	t.Run("an override from metadata", func(t *testing.T) {
		for _, want := range []string{"200 2, 2;w=60 | 1", "200 2, 2;w=60 | 0", "429 2, 2;w=60 | 0"} {
			a := get(t, p.allow, "/override", "x-user: d")
			require.Equal(t, want, fmt.Sprint(a.status, " ", a.limits()))
			a.requireReset(t, 60)
		}
	})

	t.Run("tokens of a stream", func(t *testing.T) {
		// Four streams of 3,000 pass, since the fourth began with 1,000 left. The last charge
		// is sent after the response, so the next look may come before it.
		for i := range 4 {
			a := get(t, p.allow, "/tokens", "x-user: e", "x-use: 3000")
			require.Equal(t, 200, a.status, i)
			require.Equal(t, "10000, 10000;w=86400 | "+strconv.Itoa(10000-3000*i), a.limits())
			a.requireReset(t, 86400)
			require.Eventually(t, func() bool {
				left := get(t, p.allow, "/look", "x-user: e").header.Get("X-Ratelimit-Remaining")
				return left == strconv.Itoa(max(0, 10000-3000*(i+1)))
			}, 20*time.Second, 20*time.Millisecond)
		}
		fifth := get(t, p.allow, "/tokens", "x-user: e", "x-use: 3000")
		require.Equal(t, 429, fifth.status, "the fifth")
		require.Equal(t, "10000, 10000;w=86400 | 0", fifth.limits())
		fifth.requireReset(t, 86400)
		for _, headers := range [][]string{{"x-user: f"}, {"x-user: f", "x-use: many"}, {"x-user: f", "x-use: -5"}} {
			require.Equal(t, 200, get(t, p.allow, "/tokens", headers...).status)
		}
		require.Equal(t, "10000", get(t, p.allow, "/look", "x-user: f").header.Get("X-Ratelimit-Remaining"), "a stream without a value")
	})

	t.Run("negative hits", func(t *testing.T) {
		for range 3 {
			require.Equal(t, 200, get(t, p.allow, "/back", "x-user: n").status)
		}
		require.Equal(t, "10000", get(t, p.allow, "/look", "x-user: n").header.Get("X-Ratelimit-Remaining"), "nothing was counted")
		require.Contains(t, scrape(t, s), "headgated_negative_hits_total 3\n")
	})

	t.Run("a star in the middle", func(t *testing.T) {
		for _, want := range []string{"200 2, 2;w=86400 | 1", "200 2, 2;w=86400 | 0", "429 2, 2;w=86400 | 0"} {
			a := get(t, p.allow, "/orders/"+fmt.Sprint(time.Now().UnixNano())+"/lines")
			require.Equal(t, want, fmt.Sprint(a.status, " ", a.limits()))
		}
		a := get(t, p.allow, "/orders/1/parts")
		require.Equal(t, "200  | ", fmt.Sprint(a.status, " ", a.limits()))
	})

	t.Run("more counts than a request may have", func(t *testing.T) {
		const metric = `headgated_invalid_requests_total{reason="counts"} `
		require.Equal(t, 200, get(t, p.deny, "/seventeen").status)
		require.Contains(t, scrape(t, s), metric+"0\n")
		require.Equal(t, 200, get(t, p.allow, "/many").status, "Envoy lets it pass, without a limit")
		require.Equal(t, 500, get(t, p.deny, "/many").status)
		require.Contains(t, scrape(t, s), metric+"2\n", "what the alert HeadgatedInvalidRequests reads")
	})

	t.Run("redis frozen and killed", func(t *testing.T) {
		redis.Stop()
		failing(t, p, s)
		redis.Cont()
		serving(t, p, "g")
		redis.Kill()
		failing(t, p, s)
		redis.Restart(t)
		serving(t, p, "h")
	})
}

// failing checks the answers while the store gives none. The best of some times counts:
// the machine may be busy.
func failing(t *testing.T, p *proxy, s *testServer) {
	t.Helper()
	best := time.Hour
	for i := 0; i < 20 && (i < 5 || best > failsWithin(s)); i++ {
		allow, deny := get(t, p.allow, "/header", "x-user: x"), get(t, p.deny, "/header", "x-user: x")
		require.Equal(t, 200, allow.status, "failure_mode_deny: false")
		require.Equal(t, 500, deny.status, "failure_mode_deny: true")
		best = min(best, max(allow.took, deny.took))
	}
	require.LessOrEqual(t, best, failsWithin(s))
	t.Logf("an error took %v", best)
}

func failsWithin(s *testServer) time.Duration { return 100*time.Millisecond + s.settings.budget }

// serving waits until requests are limited again, which takes 2 s on an idle machine.
func serving(t *testing.T, p *proxy, user string) {
	t.Helper()
	begin := time.Now()
	require.Eventually(t, func() bool {
		return get(t, p.deny, "/header", "x-user: "+user).limits() != " | "
	}, 20*time.Second, 20*time.Millisecond)
	t.Logf("served again after %v", time.Since(begin))
	for range 3 {
		get(t, p.deny, "/header", "x-user: "+user)
	}
	require.Equal(t, 429, get(t, p.deny, "/header", "x-user: "+user).status)
}
