package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// pinged is what ping prints.
type pinged struct {
	OK       bool     `json:"ok"`
	Nodes    []string `json:"nodes"`   // the primaries that a trial request was sent to
	Took     int64    `json:"took_us"` // all of the ping
	Warnings []string `json:"warnings"`
	Error    string   `json:"error,omitempty"`
	Node     string   `json:"node,omitempty"`   // that lacks rights
	Rights   []string `json:"rights,omitempty"` // that it lacks
	ACL      string   `json:"acl,omitempty"`    // the command that grants them
}

// errUnfit makes the exit status 1 where the server can't serve. The reason is
// printed before, on stdout, since it is ping's answer.
var errUnfit = errors.New("the server can't serve limiters")

// ping prints what Ping of the store finds. Missing rights come with the line
// that grants them, which an administrator can paste. Ping does not return the nodes
// that it has checked: they are those that have a circuit.
func ping(ctx context.Context, s *session, _ []string) error {
	l, err := s.limiter(ctx, valid)
	if err != nil {
		return err
	}
	begin := time.Now()
	warnings, err := l.Ping(ctx)
	p := pinged{
		OK: err == nil, Nodes: append([]string{}, slices.Sorted(maps.Keys(l.Stats().Circuits))...), Took: micros(time.Since(begin)),
		Warnings: append([]string{}, warnings...),
	}
	if err != nil {
		p.Error = explain("ping", err)
	}
	var missing *backend.RightError
	if errors.As(err, &missing) {
		p.Node, p.Rights = missing.Node, missing.Rights
		p.ACL = s.grant(err)
	}
	if err := s.print(p, p.text); err != nil {
		return err
	}
	if !p.OK {
		return errUnfit
	}
	return nil
}

// text has warnings first: where the last line begins with "ok", all above it is advice.
func (p *pinged) text(w *tabwriter.Writer) {
	for _, warning := range p.Warnings {
		fmt.Fprintln(w, "warning:", warning)
	}
	switch {
	case p.ACL != "":
		fmt.Fprintf(w, "error: %s\nto grant it, on %s:\n%s\n", p.Error, p.Node, p.ACL)
	case p.Error != "":
		fmt.Fprintln(w, "error:", p.Error)
	default:
		fmt.Fprintf(w, "ok: primaries checked: %d (%s), for version, rights, configuration and a trial request, in %v\n",
			len(p.Nodes), strings.Join(p.Nodes, ", "), duration(p.Took))
	}
}
