// Package standalone keeps the counts on one Redis server, or on the primary
// behind Sentinel.
//
// A decision is one EVALSHA: exact per key while the primary lives. Time is
// the server's, so clients' clocks never matter. It is not for a Redis
// Cluster; use package cluster.
package standalone

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/redis/go-redis/v9"
)

// Client is what the store needs of a go-redis client. *redis.Client is one,
// whether made by redis.NewClient or, for Sentinel, redis.NewFailoverClient.
// Its settings and hooks are left as they are; a hook must not go on with a
// command after it has returned.
//
// A limiter wants three options of it: MaxRetries: -1, DialerRetries: 1 and
// ContextTimeoutEnabled: true. Without them its own commands wait longer in an outage;
// docs/operations.md has what each costs.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Options are the settings of a Store. The zero Options, like nil, are the
// defaults.
type Options struct {
	// Name is the name of the server's circuit in events, errors and
	// Limiter.Stats; "" is the client's address. Set it to the master's name for a
	// Sentinel client, which does not report it.
	Name string
	// Budget is the maximum duration of a decision, 1 ms to 1 minute; 0 is 100 ms. A process
	// that is late by itself, such as one without a processor, may take twice as long.
	// After it the policies' failure mode applies, whatever the client's own timeouts
	// are.
	Budget time.Duration
	// Prefix begins every stored key; "headgate:" where it is empty. Printable
	// ASCII without spaces and braces, at most 128 bytes.
	Prefix string
	// DisableBatching gives every call a round trip of its own. By default, calls
	// that come while several batches are in flight leave together in the next batch.
	// Each is decided as if it were the only one, at a fraction of the cost.
	DisableBatching bool
}

// DefaultBudget is the budget of a decision where Options name none.
const DefaultBudget = 100 * time.Millisecond

// Store is a backend.Store on one Redis server. Make one with New or Open and
// share it: it is safe for concurrent use.
type Store struct {
	owned  *lazy // the client that Open made, to be closed
	set    batch.Settings
	server *batch.Server
	queue  *batch.Queue
	err    error    // of the arguments of New; Check returns it
	advice []string // of Ping, on the options of a user's client
	shared layer.Shared
}

// New returns the store behind client. It does no I/O, so a service starts while
// Redis is down. Check and headgate.New return the error of wrong arguments.
func New(client Client, opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	if s, ok := client.(simulated); ok {
		set, hook := s.Simulated()
		return open(set, opts, hook, s.Lookup)
	}
	s := &Store{}
	s.set = batch.Settings{
		Prefix: names.Prefix(opts.Prefix), Budget: opts.Budget, Shared: &s.shared, DisableBatching: opts.DisableBatching,
	}
	s.set.Defaults(DefaultBudget)
	s.shared.Budget, s.shared.Unbatched = s.set.Budget, opts.DisableBatching
	if t, ok := client.(batch.Timed); ok {
		_, s.shared.Clock, _ = t.Clocks()
	}
	if s.err = checkClient(client, opts.Name); s.err == nil {
		s.err = s.set.Check()
	}
	if s.err == nil {
		s.server = batch.NewServer(client, cmp.Or(opts.Name, address(client)), s.set)
		s.queue = batch.NewQueue(s.server, nil)
		s.advice = advice(client)
	}
	return s
}

// checkClient refuses a client that is not one of a single server. A cluster's
// or a ring's client would route each script by itself, past the circuit and
// the batches of one server. It also refuses an address or a name, which names the
// circuit, that may hold a password.
func checkClient(c Client, name string) error {
	if v := reflect.ValueOf(c); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return &backend.InvalidError{What: "client", Value: c, Want: "a go-redis client"}
	}
	//mutant:name-without-url
	if client.CheckAddr("", name) != nil {
		return &backend.InvalidError{What: "Options.Name", Value: "(hidden: it may hold a password)", Want: "a name that is no URL"}
	}
	switch c := c.(type) {
	case *redis.Client:
		//mutant:address-without-url
		return client.CheckAddr(c.Options().Network, c.Options().Addr)
	case *redis.ClusterClient:
		return &backend.InvalidError{What: "client", Value: "*redis.ClusterClient", Want: "a client of one server; for a Redis Cluster use package cluster"}
	case *redis.Ring:
		return &backend.InvalidError{What: "client", Value: "*redis.Ring", Want: "a client of one server, such as one of its GetShardClients; for a Redis Cluster use package cluster"}
	case redis.Pipeliner:
		return &backend.InvalidError{What: "client", Value: fmt.Sprintf("%T", c), Want: "a client of one server, such as *redis.Client"}
	}
	return nil
}

// address returns the default name of the server's circuit.
func address(c Client) string {
	switch c := c.(type) {
	case *redis.Client:
		return c.Options().Addr
	case *lazy:
		return c.addr
	}
	return "redis"
}

// Shared returns what all limiters on this store share; it is for Headgate's own
// layers.
func (s *Store) Shared() *layer.Shared { return &s.shared }

// Check reports whether the store can keep these policies, and whether New's
// arguments were right. It does no I/O.
func (s *Store) Check(policies []backend.Policy) error {
	if err := s.usable(); err != nil {
		return err
	}
	return backend.CheckPolicies(policies)
}

// usable returns the error of New's arguments, or that of a zero Store.
func (s *Store) usable() error {
	if s.err == nil && s.queue == nil {
		return errZero
	}
	return s.err
}

var errZero = &backend.InvalidError{What: "store", Value: "a zero standalone.Store", Want: "one that standalone.Open or New returned"}

// Do decides one request; see backend.Store.
func (s *Store) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if err := s.ready(ctx, r); err != nil {
		return err
	}
	return s.queue.Do(ctx, names.Tag(r.Key, r.Sub), 0, r, d)
}

// DoAll decides several requests at once; see layer.Batcher.
func (s *Store) DoAll(ctx context.Context, rs []backend.Request, answers []backend.Answer) {
	calls := make([]batch.Call, 0, len(rs))
	for i := range rs {
		r := &rs[i]
		if answers[i].Err = s.ready(ctx, r); answers[i].Err == nil {
			calls = append(calls, batch.Call{Queue: s.queue, Tag: names.Tag(r.Key, r.Sub), Request: r, Answer: &answers[i]})
		}
	}
	batch.DoAll(ctx, calls)
}

// ready returns the errors that need no server, that of New first.
func (s *Store) ready(ctx context.Context, r *backend.Request) error {
	if err := s.usable(); err != nil {
		return err
	}
	if s.shared.Closed.Load() {
		return backend.ErrClosed
	}
	return r.Check(ctx, capabilities)
}

// Capabilities returns what the store can do. An address that leads to the nodes of a cluster may
// refuse a script over two slots. Then one request has one key, once that is known.
func (s *Store) Capabilities() backend.Capabilities {
	c := capabilities
	//mutant:several-keys-by-leases
	if s.server != nil && s.server.Splits() {
		c.Keys = 1
	}
	return c
}

// capabilities are those of any store on Redis, and several keys in one script.
var capabilities = backend.Capabilities{Ops: batch.Capabilities.Ops, Keys: backend.MaxKeys}

// Close makes every later request backend.ErrClosed. A client that New was
// given stays open; one that Open made is closed. Before that, Close gives back the
// units that limiters have borrowed, within two budgets.
func (s *Store) Close() error {
	if s.shared.Close() || s.owned == nil {
		return nil
	}
	return s.owned.Close()
}
