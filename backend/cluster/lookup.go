package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/internal/layer"
)

// known returns the slot's node without waiting, nil where none is known.
//
// It is the path of nearly every call: two atomic loads, and a reload in the background
// every ten seconds.
func (t *topology) known(s int) *node {
	n := t.owner[s].Load()
	if n != nil {
		t.renew()
	}
	return n
}

// find is of for a call: it waits no longer than a decision may take, and returns
// for how long. A caller whose context has ended gets that error, since nothing was
// sent. Where the cluster is at fault, the failure modes apply.
func (t *topology) find(ctx context.Context, s int) (n *node, waited time.Duration, err error) {
	if n = t.known(s); n != nil {
		return n, 0, nil
	}
	err = t.wait(ctx, func(after time.Duration) bool {
		n, waited = t.owner[s].Load(), after
		return n != nil
	})
	if n == nil {
		err = t.unserved(ctx, s, err)
	}
	return n, waited, err
}

// wait is await for calls: it waits no longer than a decision may take. found gets how long
// they have waited.
func (t *topology) wait(ctx context.Context, found func(waited time.Duration) bool) error {
	begin := time.Now()
	within, cancel := layer.Within(ctx, t.set.Budget, batch.Deadline(0, t.set.Budget))
	defer cancel()
	return t.await(within, func() bool { return found(time.Since(begin)) })
}

// unserved returns the error of a call on a slot for which wait has found no node.
func (t *topology) unserved(ctx context.Context, s int, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("headgate: call not sent, not counted: %w", ctx.Err())
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, t.unknown(s, err))
}

// renew begins a reload where the last one is stale.
func (t *topology) renew() {
	if time.Since(t.begin)-time.Duration(t.last.Load()) > stale {
		t.refresh()
	}
}

// of returns the slot's node. It waits for a reload only while the slot has
// none: an old node is better than a wait, as it redirects.
func (t *topology) of(ctx context.Context, s int) (n *node, err error) {
	err = t.await(ctx, func() bool {
		n = t.owner[s].Load()
		return n != nil
	})
	if n == nil {
		return nil, t.unknown(s, err)
	}
	return n, nil
}

// await calls found until it returns true: at once, and then after each answer of a reload.
// It returns after the last one, or with the error of ctx.
func (t *topology) await(ctx context.Context, found func() bool) error {
	if t.renew(); found() {
		return nil
	}
	for next := t.refresh(); !found() && next != nil; next = t.reloading() {
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// unknown returns the error of a slot without a node. Its cause is that of the last
// reload, or err where the reload succeeded.
func (t *topology) unknown(s int, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.failure != nil {
		err = t.mu.failure
	}
	if err == nil {
		return fmt.Errorf("no node is known for slot %d", s)
	}
	return fmt.Errorf("no node is known for slot %d: %w", s, err)
}
