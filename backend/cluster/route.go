package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/script"
	"github.com/redis/go-redis/v9"
)

// route is one trip's way through the cluster.
type route struct {
	top  *topology
	slot int
	at   string // the node that was asked last
}

// Next names the slot's node, or the one that a reply redirects to.
func (r *route) Next(ctx context.Context, err error) (*script.Server, bool, error) {
	if addr, asking := redirect(err); addr != "" {
		n, err := r.top.node(announced(addr, r.at))
		if err != nil {
			return nil, false, err
		}
		if !asking {
			r.top.owner[r.slot].Store(n)
			r.top.refresh()
		}
		r.at = n.addr
		return n.server, asking, nil
	}
	if err != nil && !redis.HasErrorPrefix(err, "TRYAGAIN") {
		r.top.refresh()
	}
	n, err := r.top.of(ctx, r.slot)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	r.at = n.addr
	return n.server, false, nil
}

// Failed asks for a new picture of the cluster: the node may have been
// replaced.
func (r *route) Failed(*script.Server) { r.top.refresh() }

// redirect returns where a MOVED or ASK reply points to.
func redirect(err error) (addr string, asking bool) {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return "", false
	}
	f := strings.Fields(reply.Error())
	if len(f) == 3 && (f[0] == "MOVED" || f[0] == "ASK") {
		return f[2], f[0] == "ASK"
	}
	return "", false
}

// tuned returns the options of one node's client: the user's credentials,
// transport and pool, and the library's own patience.
func tuned(o *redis.ClusterOptions, addr string, budget time.Duration) *redis.Options {
	return script.Tuned(&redis.Options{
		Addr:                         addr,
		ClientName:                   o.ClientName,
		Dialer:                       o.Dialer,
		OnConnect:                    o.OnConnect,
		Protocol:                     o.Protocol,
		Username:                     o.Username,
		Password:                     o.Password,
		CredentialsProvider:          o.CredentialsProvider,
		CredentialsProviderContext:   o.CredentialsProviderContext,
		StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		PoolFIFO:                     o.PoolFIFO,
		PoolSize:                     o.PoolSize,
		MaxActiveConns:               o.MaxActiveConns,
		ConnMaxIdleTime:              o.ConnMaxIdleTime,
		ConnMaxLifetime:              o.ConnMaxLifetime,
		ReadBufferSize:               o.ReadBufferSize,
		WriteBufferSize:              o.WriteBufferSize,
		TLSConfig:                    o.TLSConfig,
	}, budget)
}
