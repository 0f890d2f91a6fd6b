package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHTTP(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits)
	post := func(body string) (int, string) {
		resp, err := http.Post(s.httpURL()+"/json", "application/json", strings.NewReader(body))
		return read(t, resp, err)
	}
	const user = `{"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "x"}]}]}`
	for _, want := range []int{200, 200, 429} {
		code, body := post(user)
		require.Equal(t, want, code, body)
		require.Contains(t, body, `"requestsPerUnit":2`)
	}
	for body, want := range map[string]int{
		"": 400, "{": 400, "[]": 400, `{"domain": "d"}`: 400, `{"unknown": 1}`: 400,
		`{"domain": "` + strings.Repeat("x", 5<<20) + `"}`: 413,
	} {
		code, _ := post(body)
		require.Equal(t, want, code, body[:min(50, len(body))])
	}
	for _, path := range []string{"/healthcheck", "/ready"} {
		resp, err := http.Get(s.httpURL() + path)
		code, body := read(t, resp, err)
		require.Equal(t, 200, code)
		require.Equal(t, "OK", body)
	}
	resp, err := http.Get("http://" + s.listeners["metrics"].Addr().String() + "/metrics")
	_, metrics := read(t, resp, err)
	for _, line := range []string{
		`headgated_requests_total{result="ok"} 2`, `headgated_requests_total{result="over_limit"} 1`, `headgated_requests_total{result="invalid"} 6`, `headgated_invalid_requests_total{reason="json"} 5`,
		`headgated_descriptor_decisions_total{descriptor="d.user",result="ok"} 2`, `headgated_config_loads_total{files="limits",result="ok"} 1`,
		`headgate_decisions_total{headgate_operation="take",headgate_policy="rls",headgate_result="denied",headgate_source="store"} 1`,
	} {
		require.Contains(t, metrics, line)
	}
}
