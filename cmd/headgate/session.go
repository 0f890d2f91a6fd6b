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
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/adapter"
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
	cluster                 string
	postgres, schema        string
	durable, printSQL       bool   // of migrate
	command                 string // the first word
	json                    bool
	timeout                 time.Duration
	policies, plan, tenant  string
	of, cost, header, page  string
	rows, sample            int
	every                   time.Duration
	dimensions              []string // nil: any
	unasked                 []scoped // policies of the file that limit the key too, and that list has left out
	shards                  int      // of the list
	first                   []string // of these policies of the list the first with room is charged; nil: all are
	replay                  replaying
}

// store is what the stores have in common.
type store interface {
	backend.Store
	backend.Pinger
	lister
}

// oneUnit is the default of -cost.
const oneUnit = "1"

// leastEvery is the shortest time between two refreshes of top, each of which reads -sample
// keys.
const leastEvery = 100 * time.Millisecond

// flags defines one set for all commands, so that a flag means the same
// everywhere and stands in any place. Those that a command does not have are errors: see
// command.foreign.
func (s *session) flags(stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("headgate", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {} // dispatch prints it, where it helps
	f.StringVar(&s.redis, "redis", "", "host:port or URL of the server, as redis://user:password@host:6379/0, rediss:// for TLS;\nwith -sentinel several host:port, separated by commas ($HEADGATE_REDIS, else localhost:6379)")
	f.StringVar(&s.cluster, "cluster", "", "nodes of a Redis Cluster, in place of -redis: `host:port,…`, where each may be a URL: its user, password and TLS are those of all nodes. A single node may be that of -redis")
	f.StringVar(&s.sentinel, "sentinel", "", "the name of the `master`; the server is a Sentinel")
	f.StringVar(&s.postgres, "postgres", "", "the `URL` of a PostgreSQL, as postgres://user:password@host:5432/database, in place of -redis ($HEADGATE_POSTGRES)")
	f.StringVar(&s.schema, "schema", "", "with -postgres: the schema of the tables (default \"headgate\")")
	f.BoolVar(&s.durable, "logged", false, "migrate: tables that survive a crash of the server and a failover; by default they are UNLOGGED and cheaper")
	f.BoolVar(&s.printSQL, "sql", false, "migrate: print the statements, and ask no server")
	f.StringVar(&s.ca, "ca", "", "with TLS: a PEM `file` of the authorities to trust (default the system's)")
	f.StringVar(&s.cert, "cert", "", "with TLS: a PEM `file` of the client's certificate; wants -key")
	f.StringVar(&s.key, "key", "", "with TLS: a PEM `file` of the certificate's key; replay, advise: what the calls count by, a field of the log\nor a template of several: remote (the default), header:X-API-Key, user, {user}|{path}")
	f.StringVar(&s.prefix, "prefix", "", "what stored keys begin with (default \"headgate:\");\nwith -postgres what the names of tables begin with (default nothing)")
	f.DurationVar(&s.timeout, "timeout", 5*time.Second, "how long one answer of the server may take, 1ms to 1m; the first one of a cluster's node, a second or three times as long")
	f.BoolVar(&s.json, "json", false, "print JSON, one value per line")
	f.Func("policies", "a policy `file`, YAML or JSON; see package policyfile", once(&s.policies))
	f.StringVar(&s.plan, "plan", "", "the plan of the file whose policies count (default the file's default)")
	f.StringVar(&s.tenant, "tenant", "", "the tenant of the file whose policies count; one that it does not list\nhas the default, and a note says so")
	f.Func("of", "with per in the file: the `DIMENSION=VALUE` of the calls whose policies count, such as model=large;\nonly these policies, and the key is KEY:model:large", once(&s.of))
	f.Func("dimensions", "check: the `NAMES` of the dimensions that the service's calls have, such as model,route; a policy with\nanother per is an error", func(names string) error {
		s.dimensions = strings.FieldsFunc(names, func(r rune) bool { return r == ',' || r == ' ' })
		if len(s.dimensions) == 0 {
			return errors.New("want names, separated by commas")
		}
		return nil
	})
	f.StringVar(&s.cost, "cost", oneUnit, "peek: units asked of every policy, or one number per policy, separated by commas; replay, advise: units or a field\nof the log; replay also by name: tokens=total_tokens,requests=1")
	f.StringVar(&s.header, "header", "", "peek, reset, leases: the key that httplimit.Header makes of `NAME=VALUE`, in place of KEY;\nAuthorization is read as httplimit.Authorization reads it")
	s.replay.flags(f)
	f.StringVar(&s.page, "page", "", "top: the `URL` of a live page, such as http://localhost:8080/page/: the keys that its process denies most")
	s.rows, s.replay.most = 20, 10
	f.Func("n", "top, replay: how many `keys` are listed; replay: per policy (default 20; replay: 10)", s.setRows)
	f.IntVar(&s.sample, "sample", 1000, "top: how many stored keys to read per refresh")
	f.DurationVar(&s.every, "every", 2*time.Second, "top: time between two refreshes, at least 100ms; 0 prints once")
	return f
}

// setRows reads -n.
func (s *session) setRows(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return errors.New("want at least 1")
	}
	s.rows, s.replay.most = n, n
	return nil
}

// once returns a function that sets a flag's value, and refuses a second one.
func once(to *string) func(string) error {
	return func(text string) error {
		//mutant:of-given-once
		if *to != "" {
			return errors.New("given twice; want one value")
		}
		*to = text
		return nil
	}
}

// open opens the store. It does no I/O. -timeout is the store's budget: a
// person waits longer than a request does. A command that asks no server has none.
func (s *session) open(server bool) error {
	switch {
	case s.timeout < time.Millisecond || s.timeout > time.Minute:
		return misuse{&headgate.InvalidError{What: "-timeout", Value: s.timeout, Want: "1ms to 1m"}}
	case s.sample < 1:
		return misuse{errors.New("-sample: want at least 1")}
	//mutant:least-every
	case s.every != 0 && s.every < leastEvery:
		return misuse{&headgate.InvalidError{What: "-every", Value: s.every, Want: "at least 100ms, or 0 to print once"}}
	case s.plan != "" && s.tenant != "":
		return misuse{errors.New("-plan and -tenant: want one of them")}
	case s.cluster != "" && s.sentinel != "":
		return misuse{errors.New("-cluster and -sentinel: want one of them")}
	//mutant:one-address
	case s.cluster != "" && s.redis != "":
		return misuse{errors.New("-cluster and -redis: want one of them")}
	}
	if !server {
		return nil
	}
	url, err := s.postgresURL()
	switch {
	case err != nil:
		return err
	case url != "":
		return s.openPostgres(url)
	}
	return s.openServer(cmp.Or(s.cluster, s.redis, os.Getenv("HEADGATE_REDIS"), "localhost:6379"))
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
	if s.policies == "" && (s.plan != "" || s.tenant != "" || s.of != "") {
		return misuse{&headgate.InvalidError{What: "-policies", Value: "", Want: "the file that -plan, -tenant and -of are in"}}
	}
	return nil
}

// list returns the policies of the file that limit calls of a key, and the key that they
// count. -of stands for the calls with that value of a dimension, whose counts have a key of
// their own. The error is errUnlimited for a plan without limits, and headgate.ErrBlocked for
// one that is blocked. The policies fail closed, and a file without failure modes is
// accepted: the modes are the service's.
func (s *session) list(key string) ([]headgate.Policy, string, error) {
	f, err := policyfile.Load(s.policies, &policyfile.Options{OnFailure: headgate.FailClosed, First: true})
	if err != nil {
		return nil, "", misuse{err}
	}
	use, counted, err := s.scope(f, key)
	if err != nil {
		return nil, "", err
	}
	s.unasked = s.othersOf(f)
	limiters, err := f.Limiters(s.store, &headgate.Options{Instances: 1}) // for FailLocal, which is replaced below
	if err != nil {
		return nil, "", err
	}
	parts, err := s.parts(f, limiters, key, use)
	if err != nil {
		return nil, "", err
	}
	for _, part := range parts {
		if part.Call.Key == counted {
			list := part.Limiter.Policies()
			s.shards = adapter.Of(part.Limiter).Shards
			if own := s.own(f); s.of == "" && own.First != nil { // each part has some of its policies
				list, s.first = own.Policies, own.First
			}
			for i := range list {
				list[i].OnFailure = headgate.FailClosed
			}
			return list, counted, nil
		}
	}
	return nil, "", errUnlimited
}

var errUnlimited = errors.New("the file has no limit")

// uncounted reports whether list has no policies since none counts.
func uncounted(err error) bool {
	return errors.Is(err, errUnlimited) || errors.Is(err, headgate.ErrBlocked)
}

// own returns what the plan or the tenant of the flags has.
func (s *session) own(f *policyfile.File) policyfile.List {
	if s.plan == "" {
		return f.For(s.tenant)
	}
	own, _ := f.Plan(s.plan)
	return own
}

// othersOf returns the policies that limit calls of the key and that list leaves out. These
// are those of other dimensions than that of -of, and with -of those that count by the key
// only.
func (s *session) othersOf(f *policyfile.File) []scoped {
	own := s.own(f)
	per := own.Scoped
	dimension, value, _ := strings.Cut(s.of, "=")
	for _, p := range per {
		//mutant:other-value-noted
		if p.Per == dimension && p.Only != nil && !slices.Contains(p.Only, value) {
			fmt.Fprintf(s.notes, "note: %s limits only other values of %s: %q\n", p.Policy.Name, dimension, p.Only)
		}
	}
	per = slices.DeleteFunc(per, func(p policyfile.Scoped) bool { return p.Per == dimension })
	for i := 0; i < len(own.Policies) && s.of != ""; i++ {
		per = append(per, policyfile.Scoped{Policy: own.Policies[i]})
	}
	return scopedOf(per)
}

// scope returns what -of names, and the key that it has.
func (s *session) scope(f *policyfile.File, key string) (policyfile.Use, string, error) {
	all := f.Dimensions()
	if s.of == "" {
		return policyfile.Use{}, key, nil
	}
	per, value, ok := strings.Cut(s.of, "=")
	switch {
	case !ok || value == "":
		return policyfile.Use{}, "", misuse{fmt.Errorf("-of %s: want DIMENSION=VALUE, such as model=large", printable(s.of))}
	case !slices.Contains(all, per):
		return policyfile.Use{}, "", misuse{fmt.Errorf("-of %s: no policy of the file has per: %s", printable(s.of), printable(per))}
	}
	return policyfile.Use{Of: map[string]string{per: value}}, key + ":" + headgate.Key(per, value), nil
}

// parts returns what limits a call by the plan or the tenant of the flags. A tenant that the
// file does not list gets the default plan, as in the service. A note shows it, since the
// name may be mistyped.
func (s *session) parts(f *policyfile.File, l *policyfile.Limiters, key string, use policyfile.Use) ([]headgate.Part, error) {
	if s.plan == "" {
		if s.tenant != "" && !slices.Contains(f.Tenants(), s.tenant) {
			fmt.Fprintf(s.notes, "note: the file lists no tenant %q: the default policies are used\n", s.tenant)
		}
		return keysOfParts(l.FirstFor(s.tenant, key, use))
	}
	if _, ok := f.Plan(s.plan); !ok {
		want := "none, as the file has no plans"
		if all := f.Plans(); len(all) > 0 {
			want = "one of " + strings.Join(all, ", ")
		}
		return nil, misuse{&headgate.InvalidError{What: "-plan", Value: s.plan, Want: want}}
	}
	return keysOfParts(l.PlanFirst(s.plan, key, use))
}

// keysOfParts returns the keys of alternatives.
func keysOfParts(parts []headgate.Part, err error) (keys []headgate.Part, _ error) {
	for _, p := range parts {
		keys = append(append(keys, p), p.And...)
	}
	return keys, err
}

// limiter connects, and returns a limiter by the policies.
func (s *session) limiter(ctx context.Context, list []headgate.Policy) (*headgate.Limiter, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	return headgate.New(s.store, list, &headgate.Options{Shards: s.shards})
}
