package headgate

import (
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/wait"
)

// local returns the store that decides for FailLocal. There is one for all limiters on
// s, so that what one of them let pass another does not let pass again.
func local(s backend.Store) backend.Store {
	shared := layer.Of(s)
	if shared == nil {
		return memory.New(nil)
	}
	type key struct{}
	return shared.Value(key{}, func() any { return memory.New(nil) }).(*memory.Store)
}

// queuesOf returns the queues of all limiters on s.
func queuesOf(s backend.Store) *wait.Queues {
	shared := layer.Of(s)
	if shared == nil {
		return wait.NewQueues(false)
	}
	type key struct{}
	return shared.Value(key{}, func() any { return wait.NewQueues(true) }).(*wait.Queues)
}
