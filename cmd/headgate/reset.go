package main

import (
	"context"
	"fmt"
	"text/tabwriter"
)

// reset makes a key as new for the policies of the file, or deletes all that is
// stored of it.
func reset(ctx context.Context, s *session, args []string) error {
	if s.policies == "" {
		return s.resetStored(ctx, args[0])
	}
	l, err := s.limiter()
	if err != nil {
		return err
	}
	if err := l.Reset(ctx, args[0]); err != nil {
		return err
	}
	done := struct {
		Key      string   `json:"key"`
		Policies []string `json:"reset"`
	}{Key: args[0]}
	for _, p := range l.Policies() {
		done.Policies = append(done.Policies, p.Name)
	}
	return s.print(done, func(w *tabwriter.Writer) {
		fmt.Fprintln(w, printable(done.Key), "is as new for", len(done.Policies), "policies of the file")
	})
}
