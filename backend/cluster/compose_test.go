package cluster_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/storetest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestCompose runs the contract against a cluster that somebody else started:
// docker-compose.cluster.yml, or any other, by HEADGATE_CLUSTER.
func TestCompose(t *testing.T) {
	endpoints := os.Getenv("HEADGATE_CLUSTER")
	if endpoints == "" {
		t.Skip("HEADGATE_CLUSTER names no cluster; make compose-test starts one")
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(endpoints, ",")})
	defer client.Close()
	run, n := time.Now().UnixNano(), 0
	storetest.Run(t, storetest.Harness{New: func(*testing.T) storetest.Subject {
		n++ // each subject counts apart: there is nobody who flushes that cluster
		o := &cluster.Options{Budget: 5 * time.Second, Prefix: fmt.Sprintf("compose:%d:%d:", run, n)}
		return storetest.Subject{Store: cluster.New(client, o)}
	}})
	warnings, err := cluster.New(client, nil).Ping(context.Background())
	require.NoError(t, err)
	require.Empty(t, warnings)
}
