package httpclient

import (
	"net/http"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/middleware/httplimit"
	"github.com/stretchr/testify/require"
)

func policy(name string, a algo.Algorithm) headgate.Policy {
	return headgate.Policy{Name: name, Algorithm: a, OnFailure: headgate.FailClosed}
}

func limiter(t testing.TB, s backend.Store, policies ...headgate.Policy) *headgate.Limiter {
	t.Helper()
	l, err := headgate.New(s, policies, nil)
	require.NoError(t, err)
	return l
}

// served is a server that limits by the address and else answers 204.
func served(t testing.TB, l *headgate.Limiter) http.Handler {
	t.Helper()
	limit, err := httplimit.New(l, httplimit.RemoteAddr(), nil)
	require.NoError(t, err)
	return limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
}
