package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/policyfile"
)

// session is one run of the command: its flags, and what they open. It has one
// goroutine, top's queries aside.
type session struct {
	out    io.Writer
	notes  io.Writer // what is not the answer, but a reader should see beside it
	server server
	store  store
	user   string
	ends   []func() error

	redis, sentinel, prefix string
	cert, key, ca           string
	cluster, json           bool
	timeout                 time.Duration
	policies, plan, tenant  string
	cost, header            string
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
	f.BoolVar(&s.cluster, "cluster", false, "the server is a node of a Redis Cluster; a single one is found to be one without this flag")
	f.StringVar(&s.sentinel, "sentinel", "", "the name of the `master`; the server is a Sentinel")
	f.StringVar(&s.ca, "ca", "", "with TLS: a PEM `file` of the authorities to trust (default the system's)")
	f.StringVar(&s.cert, "cert", "", "with TLS: a PEM `file` of the client's certificate; wants -key")
	f.StringVar(&s.key, "key", "", "with TLS: a PEM `file` of the certificate's key")
	f.StringVar(&s.prefix, "prefix", "", "what stored keys begin with (default \"headgate:\")")
	f.DurationVar(&s.timeout, "timeout", 5*time.Second, "how long one answer of the server may take, 1ms to 1m")
	f.BoolVar(&s.json, "json", false, "print JSON, one value per line")
	f.StringVar(&s.policies, "policies", "", "a policy `file`, YAML or JSON; see package policyfile")
	f.StringVar(&s.plan, "plan", "", "the plan of the file whose policies count (default the file's default)")
	f.StringVar(&s.tenant, "tenant", "", "the tenant of the file whose policies count; one that it does not list\nhas the default, and a note says so")
	f.StringVar(&s.cost, "cost", "1", "peek: units asked of every policy, or one number per policy, separated by commas")
	f.StringVar(&s.header, "header", "", "peek, reset, leases: the key that httplimit.Header makes of `NAME=VALUE`, in place of KEY;\nAuthorization is read as httplimit.Authorization reads it")
	f.IntVar(&s.rows, "n", 20, "top: how many keys")
	f.IntVar(&s.sample, "sample", 1000, "top: how many stored keys to read per refresh")
	f.DurationVar(&s.every, "every", 2*time.Second, "top: time between two refreshes; 0 prints once")
	return f
}

// open opens the store. It does no I/O. -timeout is the store's budget: a
// person waits longer than a request does.
func (s *session) open() error {
	switch {
	case s.timeout < time.Millisecond || s.timeout > time.Minute:
		return misuse{&headgate.InvalidError{What: "-timeout", Value: s.timeout, Want: "1ms to 1m"}}
	case s.rows < 1 || s.sample < 1:
		return misuse{errors.New("-n and -sample: want at least 1")}
	case s.plan != "" && s.tenant != "":
		return misuse{errors.New("-plan and -tenant: want one of them")}
	case s.cluster && s.sentinel != "":
		return misuse{errors.New("-cluster and -sentinel: want one of them")}
	}
	return s.openServer(cmp.Or(s.redis, os.Getenv("HEADGATE_REDIS"), "localhost:6379"))
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
		return misuse{&headgate.InvalidError{What: "-policies", Value: "", Want: "the file that -plan and -tenant are in"}}
	}
	return nil
}

// list returns the policies of the file. They fail closed, and a file without failure
// modes is accepted: the modes are the service's. A tenant that the file does not list
// gets the default plan, as in the service. A note shows it, since the name may be
// mistyped.
func (s *session) list() ([]headgate.Policy, error) {
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
			return nil, misuse{&headgate.InvalidError{What: "-plan", Value: s.plan, Want: "one of " + strings.Join(f.Plans(), ", ")}}
		}
	}
	for i := range list {
		list[i].OnFailure = headgate.FailClosed
	}
	return list, nil
}

// limiter connects, and returns a limiter by the policies.
func (s *session) limiter(ctx context.Context, list []headgate.Policy) (*headgate.Limiter, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	return headgate.New(s.store, list, nil)
}
