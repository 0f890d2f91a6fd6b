package headgate_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestCircuitNames: a circuit has its server's address, or the name that the
// store was given.
func TestCircuitNames(t *testing.T) {
	open := func(url string, o *standalone.Options) backend.Store {
		s, err := standalone.Open(url, o)
		require.NoError(t, err)
		return s
	}
	own := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer own.Close()
	sentinel := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: []string{"127.0.0.1:1"}})
	defer sentinel.Close()
	for want, s := range map[string]backend.Store{
		"127.0.0.1:1": standalone.New(own, nil),
		"127.0.0.1:2": open("redis://127.0.0.1:2/3", nil),
		"localhost:3": open("rediss://user:secret@localhost:3", nil),
		"/no/socket":  open("unix:///no/socket", nil),
		"mymaster":    standalone.New(sentinel, &standalone.Options{Name: "mymaster"}),
		"mine":        open("redis://127.0.0.1:1", &standalone.Options{Name: "mine"}),
	} {
		l, err := headgate.New(s, []headgate.Policy{perMinute}, nil)
		require.NoError(t, err)
		_, err = l.Allow(context.Background(), "k")
		require.NoError(t, err)
		require.Equal(t, []string{want}, slices.Collect(maps.Keys(l.Stats().Circuits)))
		require.NoError(t, s.Close())
	}
}
