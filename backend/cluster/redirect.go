package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/redis/go-redis/v9"
)

// Next returns the node to which a group goes after the reply err of the server
// at; see batch.Router. After MOVED or ASK that is the node that the reply
// names. After MOVED the slot's owner is corrected at once, and a reload
// corrects the others: slots seldom move one by one. After ASK the owner stays,
// since the slot is still on its way. After TRYAGAIN the same node is right, a
// moment later. After any other error the table may be old. An error of Next wraps err.
// The state of at follows from what it replied, not from that error.
func (t *topology) Next(ctx context.Context, tag string, at *batch.Server, err error) (*batch.Server, bool, error) {
	//mutant:redirects-followed
	if addr, asking := redirect(err); addr != "" {
		n, e := t.redirected(announced(addr, at.Node))
		if e != nil {
			return nil, false, fmt.Errorf("%w: %w, after %w", backend.ErrUnavailable, e, err)
		}
		if !asking {
			t.owner[slot.Of(tag)].Store(n)
			t.refresh()
		}
		return n.server, asking, nil
	}
	if err != nil && !redis.HasErrorPrefix(err, "TRYAGAIN") {
		t.refresh()
	}
	n, e := t.of(ctx, slot.Of(tag))
	if e != nil {
		return nil, false, fmt.Errorf("%w: %w, after %w", backend.ErrUnavailable, e, err)
	}
	return n.server, false, nil
}

// Failed reloads the slots: the node may have been replaced.
// It is called for each failed round trip. refresh paces the reloads.
func (t *topology) Failed() { t.refresh() }

// redirect returns where a MOVED or ASK reply points to. It returns "" for any other
// error, and for a node that has no hostname though it should. CLUSTER SLOTS has its IP.
//
// The reply has three words: MOVED or ASK, the slot, the address. The slot is not read,
// since the group's own tag names it.
func redirect(err error) (addr string, asking bool) {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return "", false
	}
	f := strings.Fields(reply.Error())
	//mutant:redirect-without-hostname
	known := len(f) == 3 && !strings.HasPrefix(f[2], "?:")
	if known && (f[0] == "MOVED" || f[0] == "ASK") {
		return f[2], f[0] == "ASK"
	}
	return "", false
}
