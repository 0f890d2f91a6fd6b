package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestAdmittance: the authorities of clients and the password are renewed without a restart.
// Files that are wrong change nothing, are logged once, and are seen in a metric.
func TestAdmittance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := func(file string) string { return filepath.Join(dir, file) }
	one, two := certificate(t, dir, "one"), certificate(t, dir, "two")
	replaceFile(t, name("cert"), string(one.cert))
	replaceFile(t, name("key"), string(one.key))
	replaceFile(t, name("ca"), string(one.cert))
	replaceFile(t, name("password"), "first\n")
	s, log := logged(t, userLimits, "-resp", "127.0.0.1:0", "-tls-cert", name("cert"), "-tls-key", name("key"), "-tls-client-ca", name("ca"), "-resp-password-file", name("password"))
	scraped := func() string {
		resp, err := http.Get("http://" + s.listeners["metrics"].Addr().String() + "/metrics")
		_, text := read(t, resp, err)
		return text
	}
	get := func(p pair, password string) error {
		mine, err := tls.X509KeyPair(p.cert, p.key)
		require.NoError(t, err)
		c := redis.NewClient(&redis.Options{Addr: s.listeners["resp"].Addr().String(), Password: password, MaxRetries: -1, DialerRetries: 1,
			TLSConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{mine}}})
		defer func() { _ = c.Close() }()
		return c.Ping(context.Background()).Err()
	}
	require.NoError(t, get(one, "first"))
	require.Error(t, get(two, "first"))
	require.ErrorContains(t, get(one, "second"), "WRONGPASS")
	require.Regexp(t, `headgated_certificate_expiry_timestamp_seconds 1\.\d+e\+09`, scraped())

	replaceFile(t, name("ca"), string(two.cert))
	replaceFile(t, name("password"), "second")
	require.Eventually(t, func() bool { return get(two, "second") == nil }, 20*time.Second, 20*time.Millisecond)
	require.Error(t, get(one, "second"))
	require.Contains(t, scraped(), `headgated_config_refused{files="certificates"} 0`)

	replaceFile(t, name("cert"), "not a certificate")
	replaceFile(t, name("password"), "\n")
	require.Eventually(t, func() bool { return strings.Contains(scraped(), `headgated_config_refused{files="certificates"} 1`) }, 20*time.Second, 20*time.Millisecond)
	time.Sleep(2 * lookEvery) // two more readings
	require.Equal(t, 1, strings.Count(log.String(), "certificates: the files are not used"))
	require.NoError(t, get(two, "second"))
	replaceFile(t, name("cert"), string(one.cert))
	replaceFile(t, name("password"), "")
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "want a password in the first line") }, 20*time.Second, 20*time.Millisecond)
	require.NoError(t, get(two, "second"))
	require.Error(t, get(two, ""))
}

// TestBrowser: a page can't charge by a browser, whatever its origin is. Programs send no such
// field.
func TestBrowser(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits)
	post := func(field, value string) int {
		body := `{"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "x"}]}]}`
		req, err := http.NewRequest(http.MethodPost, s.httpURL()+"/json", strings.NewReader(body))
		require.NoError(t, err)
		req.Host = "page.example"
		req.Header.Set(field, value)
		resp, err := http.DefaultClient.Do(req)
		code, _ := read(t, resp, err)
		return code
	}
	for range 3 {
		require.Equal(t, 403, post("Sec-Fetch-Site", "cross-site"))
		require.Equal(t, 403, post("Sec-Fetch-Site", "same-origin"))
		require.Equal(t, 403, post("Origin", "http://other.example"))
		require.Equal(t, 403, post("Origin", "http://page.example"), "a name that resolves to this machine")
	}
	require.Equal(t, 200, post("Content-Type", "application/json"))
	require.Equal(t, 200, post("Content-Type", "application/json"), "no unit was taken by the others")
	require.Equal(t, 429, post("Content-Type", "application/json"))
}

func TestProbe(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits, "-drain-delay", "1s")
	run := func(address string) (int, string) {
		var out bytes.Buffer
		return run(context.Background(), []string{"headgated", "-probe", address}, nil, io.Discard, &out), out.String()
	}
	address := s.listeners["metrics"].Addr().String()
	code, out := run(address)
	require.Zero(t, code, out)
	_, port, _ := net.SplitHostPort(address)
	proxied := exec.Command(os.Args[0], "-probe", "0.0.0.0:"+port) // this machine, and not by a loopback address
	proxied.Env = []string{"HEADGATED_TEST_PROGRAM=1", "HTTP_PROXY=http://127.0.0.1:1"}
	require.NoError(t, proxied.Run(), "a probe does not go through a proxy")
	go s.stop()
	require.Eventually(t, func() bool { return !s.readiness.ready.Load() }, 20*time.Second, time.Millisecond)
	code, out = run(address)
	require.Equal(t, 1, code)
	require.Contains(t, out, "503")
	code, out = run("127.0.0.1:1")
	require.Equal(t, 1, code)
	require.Contains(t, out, "refused")
}

// TestHangup: at SIGHUP a process reads its files at once, and goes on.
func TestHangup(t *testing.T) {
	t.Parallel()
	file, address := filepath.Join(t.TempDir(), "limits.yaml"), freePort(t)
	require.NoError(t, os.WriteFile(file, []byte(userLimits), 0o600))
	cmd := program(t, address, "-config", file, "-config-interval", "1h", "-grpc", freePort(t))
	post := func(domain string) int {
		resp, err := http.Post("http://"+address+"/json", "", strings.NewReader(fmt.Sprintf(`{"domain": %q, "descriptors": [{"entries": [{"key": "user", "value": "x"}]}]}`, domain)))
		code, _ := read(t, resp, err)
		return code
	}
	require.Equal(t, 200, post("d"))
	require.Equal(t, 200, post("other"))
	replaceFile(t, file, regexp.MustCompile(`d\n`).ReplaceAllString(strings.Replace(userLimits, "requests_per_unit: 2", "requests_per_unit: 0", 1), "other\n"))
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return post("other") == 429 }, 20*time.Second, 10*time.Millisecond)
	require.True(t, ready(address))
}

// TestHangupAtTheStart: a hangup before the server serves does not end the process, and the
// files are read once it does.
func TestHangupAtTheStart(t *testing.T) {
	own := make(chan os.Signal, 1) // without it a failure would end the test's process
	signal.Notify(own, syscall.SIGHUP)
	defer signal.Stop(own)
	file, log := filepath.Join(t.TempDir(), "limits.yaml"), &faulttest.Log{}
	require.NoError(t, os.WriteFile(file, []byte(userLimits), 0o600))
	s, _, err := settingsOf([]string{"headgated", "-config", file, "-grpc", "127.0.0.1:0", "-http", "", "-metrics", ""}, nil, io.Discard)
	require.NoError(t, err)
	v, err := newServer(s, s.logger(log))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	<-own
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- v.serve(ctx) }()
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "the files are read again") }, 20*time.Second, time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}
