//go:build go1.25

package client_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestHurriedDials: each connection that opens has a dial of a silent address tried
// again. However many open, its tries stay apart.
func TestHurriedDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const opened = 60
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		var tries atomic.Int64
		o := client.Named(&redis.Options{Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			if strings.HasPrefix(addr, "10.0.0.1:") {
				if tries.Add(1) > 2*opened { // they would fill the memory
					cancel()
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
			c, _ := net.Pipe()
			return c, nil
		}}, budget, func(_ context.Context, host string) ([]net.IPAddr, error) {
			return []net.IPAddr{{IP: net.ParseIP(host[len("of-"):])}}, nil
		})
		go func() { _, _ = o.Dialer(ctx, "tcp", "of-10.0.0.1:6379") }()
		for range opened {
			time.Sleep(30 * time.Millisecond)
			_, err := o.Dialer(ctx, "tcp", "of-10.0.0.2:6379")
			require.NoError(t, err)
		}
		time.Sleep(100 * time.Millisecond)
		require.LessOrEqual(t, int(tries.Load()), opened+10)
		require.GreaterOrEqual(t, int(tries.Load()), opened/2)
	})
}
