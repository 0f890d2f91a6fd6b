package standalone_test

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestKeysAndStored: what limiters counted is found by name, and the search ends
// where the caller ends it.
func TestKeysAndStored(t *testing.T) {
	server := redistest.Start(t)
	s := standalone.New(server.Client(t), unhurried)
	l, err := headgate.New(s, []headgate.Policy{
		{Name: "api", Algorithm: algo.FixedWindow(algo.PerDay(9)), OnFailure: headgate.FailClosed},
	}, &headgate.Options{Shards: 2})
	require.NoError(t, err)
	faulttest.KeysAndStored(t, s, func(key string) error {
		_, err := l.Allow(t.Context(), key)
		return err
	})
}

// TestKeysAndStoredRefuse: an error, and one only.
func TestKeysAndStoredRefuse(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	closed := standalone.New(redistest.Start(t).Client(t), nil)
	require.NoError(t, closed.Close())
	open := standalone.New(redistest.Start(t).Client(t), nil)
	for name, c := range map[string]struct {
		store *standalone.Store
		ctx   context.Context
		want  error
	}{
		"zero":        {&standalone.Store{}, t.Context(), &backend.InvalidError{}},
		"closed":      {closed, t.Context(), backend.ErrClosed},
		"nil context": {open, nil, &backend.InvalidError{}},
		"ended":       {open, ended, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) { faulttest.KeysAndStoredRefuse(t, c.store, c.ctx, c.want) })
	}
}
