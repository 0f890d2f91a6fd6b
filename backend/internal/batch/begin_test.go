package batch

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestBeginsSinceTheFirst: round trips that meet a full pool do not prolong the time in
// which a connection may begin.
func TestBeginsSinceTheFirst(t *testing.T) {
	s, soon := &Server{link: &link{Trips: &client.Trips{}}}, func() time.Duration { return now() + time.Second }
	s.Budget = time.Second
	require.True(t, s.await(soon))
	first := s.begins.first.Load()
	s.begins.returned(redis.ErrPoolTimeout)
	require.True(t, s.begins.beginning(s.Budget))
	for last := s.begins.last.Load(); last == s.begins.last.Load(); {
		require.True(t, s.await(soon))
	}
	require.Equal(t, first, s.begins.first.Load())
}
