// Package cluster keeps the counts on a Redis Cluster.
//
// A key lies in one slot with all its policies, under the library's own hash tag.
// So a decision is one EVALSHA on one node, exact per key while that node's primary
// lives. A dead or frozen node affects only its own keys.
package cluster

import (
	"context"
	"crypto/tls"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/redis/go-redis/v9"
)

// Client is what the store needs of a go-redis client: its options.
// *redis.ClusterClient is one. The store makes its own connections with them. A
// cluster client may wait for a frozen node when it reloads the cluster's
// state, for longer than a decision may take.
type Client interface {
	Options() *redis.ClusterOptions
}

// Options are the settings of a Store. The zero Options, like nil, are the
// defaults.
type Options struct {
	// Budget is the maximum duration of a decision, 1 ms to 1 minute; 0 is 100 ms. A process
	// that is late by itself, such as one without a processor, may take twice as long.
	// After it the policies' failure mode applies.
	Budget time.Duration
	// Prefix begins every stored key; "headgate:" where it is empty. Printable
	// ASCII without spaces and braces, at most 128 bytes.
	Prefix string
	// DisableBatching gives every call a round trip of its own. By default, calls
	// for a node to which several batches are in flight leave together in the next
	// batch. Each is decided as if it were the only one, at a fraction of the cost.
	DisableBatching bool
	// Username, Password and TLSConfig are those of the connections that Open makes. New
	// refuses them, since it takes those of its client. With a TLSConfig that names no
	// server each node is verified by its own host.
	Username, Password string
	TLSConfig          *tls.Config
}

// DefaultBudget is the budget of a decision where Options name none.
const DefaultBudget = 100 * time.Millisecond

// Store is a backend.Store on a Redis Cluster. Make one with New or Open and
// share it: it is safe for concurrent use. All fields are written by New and
// never after. top is nil in a zero Store, and where New's arguments were
// wrong.
type Store struct {
	top    *topology
	set    batch.Settings
	err    error // of the arguments of New; Check returns it
	shared layer.Shared
}

// New returns the store on the cluster that client is set up for: addresses,
// credentials, TLS, dialer and pool size are taken from its options. Where the
// options have NewClient, it makes the clients of the nodes; where they have
// ClusterSlots, it names the slots' nodes. Redirects are followed to the
// addresses that nodes announce: behind address translation, NewClient or
// Dialer maps these. The client itself is neither used nor changed nor closed.
// New does no I/O, so a service starts while the cluster is down. Check and
// headgate.New return what is wrong with the arguments.
func New(client Client, opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{}
	s.set = batch.Settings{
		Prefix: names.Prefix(opts.Prefix), Budget: opts.Budget, Shared: &s.shared, DisableBatching: opts.DisableBatching,
	}
	s.set.Defaults(DefaultBudget)
	s.shared.Budget, s.shared.Unbatched = s.set.Budget, opts.DisableBatching
	if s.err = s.check(client, opts); s.err == nil {
		s.top = newTopology(client, s.set)
		s.shared.Clock = s.top.set.Clock
	}
	return s
}

// Open returns the store on the cluster that has nodes at these addresses
// (host:port); one that lives is enough to find the others. A user, a password and TLS
// are options, and no part of an address. Open does no I/O. Close closes the store's
// connections.
func Open(addrs []string, opts *Options) (*Store, error) {
	e := &endpoints{Addrs: addrs}
	if opts != nil {
		e.Username, e.Password, e.TLSConfig = opts.Username, opts.Password, opts.TLSConfig
	}
	s := New(e, opts)
	if s.err != nil {
		return nil, s.err
	}
	return s, nil
}

// endpoints is the Client of Open: addresses and credentials. Everything else has
// go-redis's defaults.
type endpoints redis.ClusterOptions

func (e *endpoints) Options() *redis.ClusterOptions { return (*redis.ClusterOptions)(e) }

// check also refuses a nil pointer in the interface, which would panic at the
// first call.
func (s *Store) check(c Client, opts *Options) error {
	if v := reflect.ValueOf(c); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return &backend.InvalidError{What: "client", Value: c, Want: "a go-redis cluster client"}
	}
	o := c.Options()
	if o == nil || len(o.Addrs) == 0 && o.ClusterSlots == nil {
		return &backend.InvalidError{What: "addresses", Value: 0, Want: "at least one node's host:port"}
	}
	for _, addr := range o.Addrs {
		//mutant:endpoint-without-url
		if err := client.CheckAddr("", addr); err != nil {
			return err
		}
	}
	_, opened := c.(*endpoints)
	//mutant:credentials-of-open
	if !opened && (opts.Username != "" || opts.Password != "" || opts.TLSConfig != nil) {
		return &backend.InvalidError{What: "options", Value: "Username, Password or TLSConfig", Want: "none of these with New, which takes those of its client"}
	}
	return s.set.Check()
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

// usable returns the error of New's arguments, or that of a zero Store. New
// can't return it, since it returns one value, so every operation does.
func (s *Store) usable() error {
	if s.err == nil && s.top == nil {
		return errZero
	}
	return s.err
}

// errZero is an error rather than a panic: a zero Store in a struct of the
// user's is found by the first Check, at start-up.
var errZero = &backend.InvalidError{What: "store", Value: "a zero cluster.Store", Want: "one that cluster.Open or New returned"}

// Do decides one request; see backend.Store.
func (s *Store) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if err := s.ready(ctx, r); err != nil {
		return err
	}
	tag := names.Tag(r.Key, r.Sub)
	n, waited, err := s.top.find(ctx, slot.Of(tag))
	if err != nil {
		return err
	}
	return n.queue.Do(ctx, tag, waited, r, d)
}

// DoAll decides several requests at once; see layer.Batcher. Requests for one
// node can share a batch. Requests on slots without a known node wait for one
// together, and the others don't wait.
func (s *Store) DoAll(ctx context.Context, rs []backend.Request, answers []backend.Answer) {
	calls, unknown := make([]batch.Call, 0, len(rs)), []batch.Call(nil)
	for i := range rs {
		r, a := &rs[i], &answers[i]
		if a.Err = s.ready(ctx, r); a.Err != nil {
			continue
		}
		c := batch.Call{Tag: names.Tag(r.Key, r.Sub), Request: r, Answer: a}
		if n := s.top.known(slot.Of(c.Tag)); n != nil {
			c.Queue = n.queue
			calls = append(calls, c)
		} else {
			unknown = append(unknown, c)
		}
	}
	if len(unknown) > 0 {
		found := make(chan struct{})
		defer func() { <-found }()
		//mutant:known-slots-dont-wait
		go func() {
			defer close(found)
			s.findAll(ctx, unknown)
		}()
	}
	batch.DoAll(ctx, calls)
}

// findAll decides calls on slots without a known node. They wait together for a reload. After
// each of its answers those that have a node leave together. A process's first call on a spread
// key has as many as there are sub-keys.
func (s *Store) findAll(ctx context.Context, calls []batch.Call) {
	var sent sync.WaitGroup
	defer sent.Wait()
	err := s.top.wait(ctx, func(waited time.Duration) bool {
		var found []batch.Call
		calls = slices.DeleteFunc(calls, func(c batch.Call) bool {
			n := s.top.owner[slot.Of(c.Tag)].Load()
			if n != nil {
				c.Queue, c.Waited = n.queue, waited
				found = append(found, c)
			}
			return n != nil
		})
		if len(found) > 0 {
			sent.Add(1)
			go func() {
				defer sent.Done()
				//mutant:unknown-slots-in-one-batch
				batch.DoAll(ctx, found)
			}()
		}
		return len(calls) == 0
	})
	for i := range calls {
		c := &calls[i]
		c.Answer.Err = s.top.unserved(ctx, slot.Of(c.Tag), err)
	}
}

// ready returns the errors that need no node. The error of New comes first: it
// would explain all others.
func (s *Store) ready(ctx context.Context, r *backend.Request) error {
	if err := s.usable(); err != nil {
		return err
	}
	if s.shared.Closed.Load() {
		return backend.ErrClosed
	}
	return r.Check(ctx, batch.Capabilities)
}

// Capabilities returns what the store can do.
func (s *Store) Capabilities() backend.Capabilities { return batch.Capabilities }

// Close makes every later request backend.ErrClosed and closes the store's
// connections. Those of nodes that have just left the cluster are closed within
// two budgets. Before that, Close gives back the units that limiters have borrowed, within
// two budgets too.
func (s *Store) Close() error {
	if s.shared.Close() || s.top == nil {
		return nil
	}
	return s.top.close()
}

// nodeOptions returns the options of one node's client: the user's credentials,
// transport and pool, and the timeouts of a store that Headgate opens. The
// user's timeouts and retries are left out on purpose: a retry may charge
// twice, and a timeout may outlast the budget.
func nodeOptions(o *redis.ClusterOptions, addr string, budget time.Duration) *redis.Options {
	return client.Options(&redis.Options{
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
		MinIdleConns:                 o.MinIdleConns,
		MaxActiveConns:               o.MaxActiveConns,
		ConnMaxIdleTime:              o.ConnMaxIdleTime,
		ConnMaxLifetime:              o.ConnMaxLifetime,
		ReadBufferSize:               o.ReadBufferSize,
		WriteBufferSize:              o.WriteBufferSize,
		TLSConfig:                    o.TLSConfig,
	}, budget)
}
