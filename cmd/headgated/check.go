package main

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/policyfile"
)

// checkFiles reads the files of -config and -policies as a start does, and prints the
// domains. It opens neither the store of the settings nor an address.
func checkFiles(s *settings, stdout io.Writer, log *slog.Logger) error {
	counts := memory.New(nil)
	defer counts.Close()
	opts := &headgate.Options{Instances: s.instances, Logger: log}
	if s.policies != "" {
		f, err := policyfile.Load(s.policies, &policyfile.Options{OnFailure: failureModes[s.onFailure], Reserves: true})
		if err == nil {
			_, err = f.Limiters(counts, opts)
		}
		if err != nil {
			return fmt.Errorf("-policies: %w", err)
		}
		fmt.Fprintf(stdout, "policies %q, plans: %d\n", s.policies, len(f.Plans()))
	}
	if s.config == "" {
		return nil
	}
	base, err := newBase(counts, opts)
	if err != nil {
		return err
	}
	w := &watcher{settings: s, log: log, base: base}
	config, err := w.parse(w.read())
	if err != nil {
		return err
	}
	limits := config.Limits()
	for _, domain := range slices.Sorted(maps.Keys(limits)) {
		fmt.Fprintf(stdout, "domain %q, limits: %d\n", domain, limits[domain])
	}
	return nil
}
