package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/headgate-go/headgate"
)

// pinged is what ping prints.
type pinged struct {
	OK       bool     `json:"ok"`
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
// that grants them, which an administrator can paste.
func ping(ctx context.Context, s *session, _ []string) error {
	warnings, err := s.store.Ping(ctx)
	p := pinged{OK: err == nil, Warnings: append([]string{}, warnings...)}
	if err != nil {
		p.Error = strings.TrimPrefix(err.Error(), "headgate: ")
	}
	var missing *headgate.RightError
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

// text has warnings first: where the last line is "ok", all above it is advice.
func (p *pinged) text(w *tabwriter.Writer) {
	for _, warning := range p.Warnings {
		fmt.Fprintln(w, "warning:", warning)
	}
	switch {
	case p.ACL != "":
		fmt.Fprintf(w, "error: %s\nto grant it, on %s: %s\n", p.Error, p.Node, p.ACL)
	case p.Error != "":
		fmt.Fprintln(w, "error:", p.Error)
	default:
		fmt.Fprintln(w, "ok")
	}
}
