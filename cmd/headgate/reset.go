package main

import (
	"context"
	"fmt"
	"text/tabwriter"
)

// reset deletes what the policies of the file count of a key, or all that is
// stored of it.
func reset(ctx context.Context, s *session, args []string) error {
	if err := s.wantsPolicies(); err != nil {
		return err
	}
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
		fmt.Fprintf(w, "%s was reset for %d policies of the file\n", printable(done.Key), len(done.Policies))
	})
}
