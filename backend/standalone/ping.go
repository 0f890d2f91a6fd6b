package standalone

import (
	"context"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/backend/internal/wire"
	"github.com/headgate-go/headgate/internal/layer"
)

// MinRedisVersion is the lowest version of Redis that the store works with.
const MinRedisVersion = batch.MinRedisVersion

// Ping checks that the server is reachable, new enough, a primary, and no
// member of a cluster. It checks that its user has each right that the scripts
// need, SCRIPT LOAD too. A missing right is a *backend.RightError. Ping warns
// where the server may evict counts, and where the round trip takes over a
// quarter of the budget.
func (s *Store) Ping(ctx context.Context) (warnings []string, err error) {
	return batch.Within(ctx, s.ping)
}

// ping goes from the cause to the symptom: what the server is, the rights, a
// trial request. The time of a round trip comes last, when a connection is
// open.
func (s *Store) ping(ctx context.Context) (warnings []string, err error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if s.shared.Closed.Load() {
		return nil, backend.ErrClosed
	}
	info, err := batch.ReadInfo(ctx, s.client, s.node)
	if err != nil {
		return nil, err
	}
	if err := info.Check(); err != nil {
		return nil, err
	}
	if info["cluster_enabled"] == "1" {
		return nil, &backend.InvalidError{What: "server", Value: "a member of a Redis Cluster", Want: "a server of its own"}
	}
	if w := info.Evicts(); w != "" {
		warnings = append(warnings, w)
	}
	if err := batch.Rights(ctx, s.client, s.node, s.set.Prefix, wire.Tag(batch.PingKey, "")); err != nil {
		return warnings, err
	}
	if _, err := layer.Ask(ctx, s, batch.Probe(batch.PingKey)); err != nil {
		return warnings, err
	}
	slow, err := batch.Slow(ctx, s.client, s.node, s.set.Budget)
	if slow != "" {
		warnings = append(warnings, slow)
	}
	return warnings, err
}
