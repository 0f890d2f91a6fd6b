package conformance

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"
)

// bin is examples/http, built.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "headgate")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	bin = filepath.Join(dir, "example")
	build := exec.Command("go", "build", "-o", bin, "./examples/http")
	build.Dir = filepath.Join("..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	return m.Run()
}

// start runs the example and returns its URL.
func start(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(bin, append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimPrefix(strings.TrimSpace(line), "listening on ")
}

// clients are one per protocol.
func clients() map[string]*http.Client {
	var one, two http.Protocols
	one.SetHTTP1(true)
	two.SetUnencryptedHTTP2(true)
	return map[string]*http.Client{
		"HTTP/1.1": {Transport: &http.Transport{Protocols: &one}},
		"HTTP/2.0": {Transport: &http.Transport{Protocols: &two}},
	}
}

type response struct {
	*http.Response
	body   []byte
	policy map[string]params
	limit  map[string]params
}

type params map[string]int64

func request(t *testing.T, c *http.Client, method, url string) response {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	require.NoError(t, err)
	resp, err := c.Do(r)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return response{resp, body, fields(t, resp, "RateLimit-Policy"), fields(t, resp, "RateLimit")}
}

// fields reads a list of strings whose parameters are whole numbers, none of
// them negative.
func fields(t *testing.T, resp *http.Response, name string) map[string]params {
	t.Helper()
	values := resp.Header.Values(name)
	if len(values) == 0 {
		return nil
	}
	list, err := httpsfv.UnmarshalList(values)
	require.NoError(t, err, values)
	found := map[string]params{}
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		require.True(t, ok, values)
		policy, ok := item.Value.(string)
		require.True(t, ok, "a string, no token: %v", values)
		require.NotContains(t, found, policy)
		found[policy] = params{}
		for _, p := range item.Params.Names() {
			v, _ := item.Params.Get(p)
			n, ok := v.(int64)
			require.True(t, ok && n >= 0, values)
			found[policy][p] = n
		}
	}
	return found
}

func TestExample(t *testing.T) {
	for protocol, c := range clients() {
		url := start(t)
		for i := range int64(15) {
			method := []string{http.MethodGet, http.MethodHead}[i%2]
			r := request(t, c, method, url)
			require.Equal(t, protocol, r.Proto)
			require.Equal(t, map[string]params{"burst": {"q": 10, "w": 2}, "daily": {"q": 1000, "w": 86400}}, r.policy)
			require.Len(t, r.limit, 2)
			require.LessOrEqual(t, r.limit["burst"]["r"], int64(9))
			require.LessOrEqual(t, r.limit["daily"]["t"], int64(86400))
			require.Contains(t, r.limit["burst"], "t")
			if r.StatusCode == http.StatusOK {
				require.Empty(t, r.Header.Get("Retry-After"))
				continue
			}
			require.Equal(t, http.StatusTooManyRequests, r.StatusCode)
			require.GreaterOrEqual(t, i, int64(10), "ten at once pass")
			after, err := strconv.ParseInt(r.Header.Get("Retry-After"), 10, 64)
			require.NoError(t, err)
			require.GreaterOrEqual(t, after, max(1, r.limit["burst"]["t"]), "not before t")
			checkProblem(t, r, method, "quota-exceeded", 429, "burst")
		}
		require.Equal(t, http.StatusTooManyRequests, request(t, c, http.MethodHead, url).StatusCode)
		health := request(t, c, http.MethodGet, url+"/health")
		require.Equal(t, http.StatusOK, health.StatusCode)
		require.Nil(t, health.limit)
	}
}

// checkProblem checks the problem details of RFC 9457.
func checkProblem(t *testing.T, r response, method, kind string, status int, violated ...string) {
	t.Helper()
	require.Equal(t, "application/problem+json", r.Header.Get("Content-Type"))
	if method == http.MethodHead {
		require.Empty(t, r.body)
		return
	}
	require.Equal(t, strconv.Itoa(len(r.body)), r.Header.Get("Content-Length"))
	var p struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Violated []string `json:"violated-policies"`
	}
	d := json.NewDecoder(strings.NewReader(string(r.body)))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&p), string(r.body))
	require.Equal(t, "https://iana.org/assignments/http-problem-types#"+kind, p.Type)
	require.NotEmpty(t, p.Title)
	require.Equal(t, status, p.Status)
	require.Equal(t, violated, p.Violated)
}

// TestExampleWithoutRedis: nobody listens on port 1. No field has a number that
// nobody counted.
func TestExampleWithoutRedis(t *testing.T) {
	for protocol, c := range clients() {
		for mode, want := range map[string]int{"open": 200, "closed": 503, "local": 200} {
			r := request(t, c, http.MethodGet, start(t, "-redis", "redis://127.0.0.1:1", "-fail", mode))
			require.Equal(t, protocol, r.Proto)
			require.Equal(t, want, r.StatusCode, mode)
			require.Len(t, r.policy, 2)
			require.Equal(t, mode == "local", r.limit != nil, "this process counts, or nobody")
			if mode == "closed" {
				require.Equal(t, "1", r.Header.Get("Retry-After"))
				checkProblem(t, r, http.MethodGet, "temporary-reduced-capacity", 503)
			}
			if mode == "local" {
				require.EqualValues(t, 4, r.limit["burst"]["r"], "half of 10, less one")
			}
		}
	}
}
