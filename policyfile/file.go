package policyfile

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/file"
)

// Options are the settings of Parse, Load and Watch. The zero Options, like
// nil, are the defaults.
type Options struct {
	// OnFailure is the failure mode of policies that name none. Where it is 0,
	// each policy must name its own.
	OnFailure headgate.FailureMode
	// Dimensions are those that the service's calls have, such as "model" and "route". A
	// policy whose per is another one would limit no call, so it is an error. nil: any is
	// accepted.
	Dimensions []string
	// Reserves states that the service reserves, records, or decides several keys. Shards
	// are an error then, since such a call would be.
	Reserves bool
	// First states that the service decides calls by Limiters.FirstFor. A list may have first
	// then, and else not, since a call would be charged to all of its policies.
	First bool
	// Limiter are the options of the limiters that Watch makes; nil is
	// headgate.New's defaults. Its Shards and Borrow are ignored, since the file has them.
	// Parse and Load ignore all of it.
	Limiter *headgate.Options
	// Interval is how often Watch reads the file; 1 s where it is 0. A change
	// applies within two of them. Parse and Load ignore it.
	Interval time.Duration
	// Reloaded, where it is not nil, is called after each change that Watch has
	// seen. Its argument is nil when the new list is in use, else the reason
	// why the old one still is. The goroutine that reads the file calls it, so
	// it must not call Watcher.Close. Parse and Load ignore it.
	Reloaded func(err error)
}

// File is what a file says: the policies of each plan and tenant. It is
// immutable and safe for concurrent use. The zero File has no policies.
type File struct {
	plans    map[string]list // the default under ""
	fallback string          // the default plan's name, "" if there are no plans
	tenants  map[string]tenant
	names    []string // of the policies of the file, those of no plan too
}

// tenant is what a file has for a tenant. Without changes all is as in the plan, so that
// thousands of tenants of a plan share one list and one limiter. plan is "" for the
// default.
type tenant struct {
	plan    string
	changed bool
	own     list
}

// Load reads the file at path. See Parse.
func Load(path string, opts *Options) (*File, error) {
	data, err := file.Read(path)
	if err != nil {
		return nil, unreadable(err)
	}
	return Parse(path, data, opts)
}

func unreadable(err error) error { return fmt.Errorf("headgate: policy file: %w", err) }

// Parse reads a file's bytes; name is what errors call the file. The error is
// an *Error with file, line and field, the same each time for the same bytes. A
// list that Parse returns is one that headgate.New accepts, except for
// FailLocal without Options.Instances, or with more instances than units.
func Parse(name string, data []byte, opts *Options) (*File, error) {
	if opts == nil {
		opts = &Options{}
	}
	root, err := document(name, data)
	if err != nil {
		return nil, err
	}
	p := &parser{onFailure: opts.OnFailure, dimensions: opts.Dimensions, reserves: opts.Reserves, first: opts.First}
	if p.probe, err = probe(); err != nil {
		return nil, err
	}
	return p.parse(root)
}

// probe returns a limiter whose With refuses what no limiter could use. So the
// ranges of numbers are those of headgate itself, and are written once. Its one
// instance makes it accept FailLocal, which the service's own Options decide.
func probe() (*headgate.Limiter, error) {
	return usable(memory.New(nil), &headgate.Options{Instances: 1})
}

// Plans returns the names of the plans in order. It is empty where the file
// has none, and all policies together are the default.
func (f *File) Plans() []string {
	return slices.DeleteFunc(sorted(f.plans), func(name string) bool { return name == "" })
}

// Tenants returns the names of the tenants that the file lists, in order.
func (f *File) Tenants() []string { return sorted(f.tenants) }

// Dimensions returns the dimensions by which policies of any plan or tenant count, in
// alphabetical order. It is empty if no policy has per.
func (f *File) Dimensions() []string {
	all := map[string]bool{}
	note := func(l *list) {
		for _, per := range l.dimensions() {
			all[per] = true
		}
	}
	for _, l := range f.plans {
		note(&l)
	}
	for _, t := range f.tenants {
		note(&t.own)
	}
	return sorted(all)
}

// Plan returns the list of a plan, and whether the file has that plan. "" is the default.
// The list is the caller's.
func (f *File) Plan(name string) (List, bool) {
	l, ok := f.plans[name]
	if !ok {
		return List{}, false
	}
	return l.exported(), true
}

// For returns the list of a tenant: the default where the file does not list the tenant. The
// list is the caller's. It has no policies for a tenant without limits, and for one that is
// blocked.
func (f *File) For(name string) List {
	if len(f.plans) == 0 { // a zero File
		return List{}
	}
	return f.list(name).exported()
}

func (f *File) list(name string) list {
	t := f.tenants[name]
	if t.changed {
		return t.own
	}
	return f.plans[t.plan]
}

// usable returns a limiter on s from which With makes those of every list, also where
// the default has no limits.
func usable(s backend.Store, opts *headgate.Options) (*headgate.Limiter, error) {
	policy := headgate.Policy{Name: "any", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailOpen}
	if opts != nil {
		own := *opts
		own.Shards, own.Borrow = 0, 0
		opts = &own
	}
	return headgate.New(s, []headgate.Policy{policy}, opts)
}
