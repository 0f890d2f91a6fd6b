package cluster

import (
	"testing"

	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestDefaultClientIsOurs: NewClusterClient fills in a NewClient. Nodes are a user's own
// clients, which cost a quiet call a second round trip, only if the user has given one.
func TestDefaultClientIsOurs(t *testing.T) {
	own := func(o *redis.Options) *redis.Client { return redis.NewClient(o) }
	for _, given := range []bool{false, true} {
		o := &redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}
		if given {
			o.NewClient = own
		}
		client := redis.NewClusterClient(o)
		defer client.Close()
		require.Equal(t, given, newTopology(client, batch.Settings{}).opts.NewClient != nil)
	}
}
