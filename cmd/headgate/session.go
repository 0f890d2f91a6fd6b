package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	neturl "net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/policyfile"
	"github.com/redis/go-redis/v9"
)

// session is one run of the command: its flags, and what they open. It has one
// goroutine, top's queries aside.
type session struct {
	out   io.Writer
	notes io.Writer // what is not the answer, but a reader should see beside it
	store store
	user  string
	ends  []func() error

	redis, sentinel, prefix string
	cluster, json           bool
	timeout                 time.Duration
	policies, plan, tenant  string
	cost                    string
	rows, sample            int
	every                   time.Duration
}

// store is what standalone.Store and cluster.Store have in common.
type store interface {
	backend.Store
	backend.Pinger
	inspector
}

// flags defines one set for all commands, so that a flag means the same
// everywhere and stands in any place. A command ignores those that it has no
// use for.
func (s *session) flags(stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("headgate", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {} // dispatch prints it, where it helps
	f.StringVar(&s.redis, "redis", "", "host:port or URL of the server, as redis://user:password@host:6379/0, rediss:// for TLS;\nwith -cluster or -sentinel several host:port, separated by commas ($HEADGATE_REDIS, else localhost:6379)")
	f.BoolVar(&s.cluster, "cluster", false, "the server is a node of a Redis Cluster")
	f.StringVar(&s.sentinel, "sentinel", "", "the name of the `master`; the server is a Sentinel")
	f.StringVar(&s.prefix, "prefix", "", "what stored keys begin with (default \"headgate:\")")
	f.DurationVar(&s.timeout, "timeout", 5*time.Second, "how long one answer of the server may take, 1ms to 1m")
	f.BoolVar(&s.json, "json", false, "print JSON, one value per line")
	f.StringVar(&s.policies, "policies", "", "a policy `file`, YAML or JSON; see package policyfile")
	f.StringVar(&s.plan, "plan", "", "the plan of the file whose policies count (default the file's default)")
	f.StringVar(&s.tenant, "tenant", "", "the tenant of the file whose policies count; one that it does not list\nhas the default, and a note says so")
	f.StringVar(&s.cost, "cost", "1", "peek: units asked of every policy, or one number per policy, separated by commas")
	f.IntVar(&s.rows, "n", 20, "top: how many keys")
	f.IntVar(&s.sample, "sample", 1000, "top: how many stored keys to read per refresh")
	f.DurationVar(&s.every, "every", 2*time.Second, "top: time between two refreshes; 0 prints once")
	return f
}

// open opens the store. It does no I/O. -timeout is the store's budget: a
// person waits longer than a request does.
func (s *session) open() error {
	url := cmp.Or(s.redis, os.Getenv("HEADGATE_REDIS"), "localhost:6379")
	switch {
	case s.timeout == 0: // to the store, 0 is its default
		return &headgate.InvalidError{What: "-timeout", Value: s.timeout, Want: "1ms to 1m"}
	case s.rows < 1 || s.sample < 1:
		return errors.New("-n and -sample: want at least 1")
	case s.plan != "" && s.tenant != "":
		return errors.New("-plan and -tenant: want one of them")
	case s.cluster && s.sentinel != "":
		return errors.New("-cluster and -sentinel: want one of them")
	case s.cluster:
		return s.openCluster(url)
	case s.sentinel != "":
		return s.openSentinel(url)
	}
	first, more := addresses(url)
	if len(more) > 0 {
		return errors.New("-redis: several addresses: want -cluster or -sentinel")
	}
	o, err := redis.ParseURL(first)
	if err != nil {
		return parseError(first, err)
	}
	s.user = o.Username
	st, err := standalone.Open(first, &standalone.Options{Budget: s.timeout, Prefix: s.prefix})
	if err != nil {
		return err
	}
	s.store = st
	return nil
}

// openCluster takes a URL, or several addresses with the credentials of the
// first.
func (s *session) openCluster(url string) error {
	first, more := addresses(url)
	o, err := redis.ParseClusterURL(first)
	if err != nil {
		return parseError(first, err)
	}
	o.Addrs = append(o.Addrs, more...)
	s.user = o.Username
	s.store = cluster.New(nodes{o}, &cluster.Options{Budget: s.timeout, Prefix: s.prefix})
	return s.store.Check(valid)
}

// nodes are the options that a cluster's store makes its connections with. A
// ClusterClient would do as well, and would have to be closed.
type nodes struct{ *redis.ClusterOptions }

func (n nodes) Options() *redis.ClusterOptions { return n.ClusterOptions }

// valid is a list of policies that every store takes: Check then returns what
// is wrong with the store's options, before the first round trip.
var valid = []backend.Policy{{Name: "valid", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: backend.FailClosed}}

// openSentinel gives the credentials of the URL to the primary. Sentinel itself
// gets none.
func (s *session) openSentinel(url string) error {
	first, more := addresses(url)
	o, err := redis.ParseURL(first)
	if err != nil {
		return parseError(first, err)
	}
	s.user = o.Username
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: s.sentinel, SentinelAddrs: append([]string{o.Addr}, more...),
		Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig,
	})
	s.ends = append(s.ends, client.Close)
	st := standalone.New(client, &standalone.Options{Name: s.sentinel, Budget: s.timeout, Prefix: s.prefix})
	s.store = st
	return st.Check(valid)
}

// parseError hides an error that may quote a password. A parser that finds the end of
// the host in the password quotes the rest as a port, a path or an option.
func parseError(url string, err error) error {
	if errors.As(err, new(*neturl.Error)) || strings.Contains(url, "@") {
		return errors.New("-redis: not a URL of a server: want redis://user:password@host:6379/0, and %25 for a % in the password")
	}
	return err
}

// addresses divides "a:1,b:2", where the first may be a URL. Commas before the last @
// belong to the password.
func addresses(url string) (first string, more []string) {
	host := strings.LastIndexByte(url, '@') + 1
	all := strings.Split(url[host:], ",")
	all[0] = url[:host] + all[0]
	if !strings.Contains(all[0], "://") {
		all[0] = "redis://" + all[0]
	}
	return all[0], all[1:]
}

// close closes the store before the client that it uses.
func (s *session) close() {
	if s.store != nil {
		_ = s.store.Close()
	}
	for _, end := range s.ends {
		_ = end()
	}
}

// wantsPolicies refuses a plan or a tenant without the file that they are in: more
// would be shown, or reset, than was asked for.
func (s *session) wantsPolicies() error {
	if s.policies == "" && (s.plan != "" || s.tenant != "") {
		return &headgate.InvalidError{What: "-policies", Value: "", Want: "the file that -plan and -tenant are in"}
	}
	return nil
}

// limiter returns a limiter by the policies of the file. Its policies fail
// closed, and a file without failure modes is accepted: the modes are the
// service's. A tenant that the file does not list gets the default plan, as in
// the service. A note shows it, since the name may be mistyped.
func (s *session) limiter() (*headgate.Limiter, error) {
	f, err := policyfile.Load(s.policies, &policyfile.Options{OnFailure: headgate.FailClosed})
	if err != nil {
		return nil, err
	}
	if s.tenant != "" && !slices.Contains(f.Tenants(), s.tenant) {
		fmt.Fprintf(s.notes, "note: the file lists no tenant %q: the default policies are used\n", s.tenant)
	}
	list := f.For(s.tenant)
	if s.plan != "" {
		var ok bool
		if list, ok = f.Plan(s.plan); !ok {
			return nil, &headgate.InvalidError{What: "-plan", Value: s.plan, Want: "one of " + strings.Join(f.Plans(), ", ")}
		}
	}
	for i := range list {
		list[i].OnFailure = headgate.FailClosed
	}
	return headgate.New(s.store, list, nil)
}
