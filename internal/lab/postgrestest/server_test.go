package postgrestest

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestServer: a server listens, and listens again after each kind of end.
func TestServer(t *testing.T) {
	s := Start(t)
	listens := func() bool {
		c, err := net.Dial("tcp", s.Addr())
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	require.True(t, listens())
	for _, end := range []func(){s.Kill, s.Shutdown} {
		end()
		require.False(t, listens())
		s.Restart(t)
		require.True(t, listens())
	}
}
