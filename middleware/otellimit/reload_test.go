package otellimit_test

import (
	"errors"
	"testing"

	"github.com/headgate-go/headgate/middleware/otellimit"
	"github.com/stretchr/testify/require"
)

// TestReloaded: reloads of a policy file by their result, and whether the last was refused.
func TestReloaded(t *testing.T) {
	const loads, refused = "headgate.config.loads {load}", "headgate.config.refused {file}"
	m, reader := start(t, nil)
	require.Empty(t, read(t, reader)[refused], "not of a service without a file")
	m.Reloaded(nil)
	require.Equal(t, map[string]float64{"": 0}, read(t, reader)[refused])
	m.Reloaded(errors.New("line 3"))
	m.Reloaded(errors.New("line 4"))
	require.Equal(t, map[string]float64{"": 1}, read(t, reader)[refused])
	m.Reloaded(nil)
	require.Equal(t, map[string]float64{"": 0}, read(t, reader)[refused])
	require.Equal(t, map[string]float64{"result=ok": 2, "result=error": 2}, read(t, reader)[loads])
	new(otellimit.Metrics).Reloaded(nil)
	(*otellimit.Metrics)(nil).Reloaded(nil)
}
