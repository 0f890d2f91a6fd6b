package batch

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestBeginsSinceTheFirst: round trips that meet a full pool do not prolong the time in
// which a connection may begin.
func TestBeginsSinceTheFirst(t *testing.T) {
	s := &Server{}
	s.Budget = time.Second
	require.True(t, s.await(now()+time.Second))
	first := s.begins.first.Load()
	s.begins.returned(redis.ErrPoolTimeout)
	require.True(t, s.begins.beginning(s.Budget))
	for last := s.begins.last.Load(); last == s.begins.last.Load(); {
		require.True(t, s.await(now()+time.Second))
	}
	require.Equal(t, first, s.begins.first.Load())
}
