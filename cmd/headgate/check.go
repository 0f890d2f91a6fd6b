package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	Policies []string `json:"policies"`
	Per      []scoped `json:"per,omitempty"`
	First    []string `json:"first,omitempty"` // of these policies the first one with room is charged
}

// scoped is a policy that counts by a dimension beside the key.
type scoped struct {
	Policy    string   `json:"policy"`
	Algorithm string   `json:"algorithm,omitempty"`
	Blocked   bool     `json:"blocked,omitempty"`
	Dimension string   `json:"dimension,omitempty"` // "" of a policy that counts by the key only
	Only      []string `json:"only,omitempty"`      // the values that it limits
}

func scopedOf(list []policyfile.Scoped) (all []scoped) {
	for _, s := range list {
		p := scoped{Policy: s.Policy.Name, Blocked: s.Blocked, Dimension: s.Per, Only: s.Only}
		if !s.Blocked {
			p.Algorithm = s.Policy.Algorithm.String()
		}
		all = append(all, p)
	}
	return all
}

// dimensionsOf returns the dimensions of the policies, each once.
func dimensionsOf(list []scoped) (all []string) {
	for _, s := range list {
		if !slices.Contains(all, s.Dimension) {
			all = append(all, s.Dimension)
		}
	}
	return all
}

// String returns the policy with its dimension as the file has it.
func (s scoped) String() string {
	if s.Dimension == "" {
		return s.Policy + " " + s.Algorithm
	}
	per := "per: " + printable(s.Dimension)
	if len(s.Only) > 0 {
		only := make([]string, len(s.Only))
		for i, value := range s.Only {
			only[i] = printable(value)
		}
		per += ", only: [" + strings.Join(only, ", ") + "]"
	}
	return fmt.Sprintf("%s %s {%s}", s.Policy, cmp.Or(s.Algorithm, "blocked"), per)
}

// check loads a policy file as a service does, and prints its plans. It accepts a file without
// failure modes: they are the service's.
func check(_ context.Context, s *session, args []string) error {
	f, err := policyfile.Load(args[0], &policyfile.Options{OnFailure: headgate.FailClosed, Dimensions: s.dimensions, First: true})
	var wrong *policyfile.Error
	if errors.As(err, &wrong) && (wrong.Field == "domain" || wrong.Field == "descriptors") {
		return fmt.Errorf("%w; for limits of headgated use: headgated -check -config %s", err, printable(args[0]))
	}
	if err != nil {
		return err
	}
	c := checked{File: args[0], Tenants: append([]string{}, f.Tenants()...), Dimensions: append([]string{}, f.Dimensions()...)}
	for _, name := range append(f.Plans(), "") {
		list, ok := f.Plan(name)
		if !ok {
			continue
		}
		p := planLimit{name, list.Blocked, []string{}, scopedOf(list.Scoped), list.First}
		for _, policy := range list.Policies {
			p.Policies = append(p.Policies, policy.Name+" "+policy.Algorithm.String())
		}
		c.Plans = append(c.Plans, p)
	}
	return s.print(c, c.text)
}

func (c checked) text(w *tabwriter.Writer) {
	row(w, "PLAN", "POLICIES")
	for _, p := range c.Plans {
		policies := slices.Clone(p.Policies)
		for _, s := range p.Per {
			policies = append(policies, s.String())
		}
		if p.First != nil {
			policies = append(policies, "first of "+strings.Join(p.First, ", "))
		}
		if p.Blocked {
			policies = []string{"blocked"}
		}
		row(w, cmp.Or(p.Plan, "(default)"), cmp.Or(strings.Join(policies, ", "), "no limits"))
	}
	if len(c.Dimensions) > 0 {
		fmt.Fprintf(w, "policies count by %s too\n", strings.Join(c.Dimensions, ", "))
	}
	fmt.Fprintf(w, "%s is valid, and names %d tenants\n", printable(c.File), len(c.Tenants))
}
