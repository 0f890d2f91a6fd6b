package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/policyfile"
)

// checked is what check prints of a file that a service can load.
type checked struct {
	File       string      `json:"file"`
	Plans      []planLimit `json:"plans"`
	Tenants    []string    `json:"tenants"`
	Dimensions []string    `json:"dimensions"` // by which policies count
}

// planLimit is one plan of a file. The plan without a name is the default.
type planLimit struct {
	Plan     string   `json:"plan"`
	Blocked  bool     `json:"blocked,omitempty"`
	Policies []string `json:"policies"` // those that count by a dimension are left out
}

// check loads a policy file as a service does, and prints its plans. It accepts a file without
// failure modes: they are the service's.
func check(_ context.Context, s *session, args []string) error {
	f, err := policyfile.Load(args[0], &policyfile.Options{OnFailure: headgate.FailClosed})
	if err != nil {
		return err
	}
	c := checked{File: args[0], Tenants: append([]string{}, f.Tenants()...), Dimensions: append([]string{}, f.Dimensions()...)}
	for _, name := range append(f.Plans(), "") {
		list, ok := f.Plan(name)
		if !ok {
			continue
		}
		p := planLimit{name, list == nil, []string{}} // a plan without limits has an empty list
		for _, policy := range list {
			p.Policies = append(p.Policies, fmt.Sprintf("%s %v(%v)", policy.Name, policy.Algorithm.Kind(), policy.Algorithm.Limit()))
		}
		c.Plans = append(c.Plans, p)
	}
	return s.print(c, c.text)
}

func (c checked) text(w *tabwriter.Writer) {
	row(w, "PLAN", "POLICIES")
	for _, p := range c.Plans {
		name := cmp.Or(p.Plan, "(default)")
		policies := strings.Join(p.Policies, ", ")
		if p.Blocked {
			policies = "blocked"
		}
		row(w, name, cmp.Or(policies, "no limits"))
	}
	if len(c.Dimensions) > 0 {
		fmt.Fprintf(w, "policies count by %s too\n", strings.Join(c.Dimensions, ", "))
	}
	fmt.Fprintf(w, "%s is valid, and names %d tenants\n", printable(c.File), len(c.Tenants))
}
