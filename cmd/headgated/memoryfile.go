package main

import (
	"context"
	"time"

	"github.com/headgate-go/headgate/backend/memory"
)

// looksAtFile is how often the server looks at what became of the last write of -memory-file.
const looksAtFile = 500 * time.Millisecond

// openMemory shows the numbers of a store in memory, which are 0 of any other one. A file that it
// did not begin with is in the log.
func (v *server) openMemory() {
	v.memory, _ = v.store.counts.(*memory.Store) // the Stats of nil are zero
	v.metrics.memory(v.memory.Stats)
	//mutant:memory-file-warns
	if warnings, _ := v.memory.Ping(context.Background()); len(warnings) > 0 {
		v.log.Warn("the file of counts", "problems", warnings)
	}
}

// followFile logs when -memory-file can't be written, and when it can again.
func (v *server) followFile(ctx context.Context) {
	failed := v.memory.Stats().File.Err != nil // which openMemory has logged
	follow(ctx, looksAtFile, func() {
		err := v.memory.Stats().File.Err
		switch {
		//mutant:memory-file-failure
		case err != nil && !failed:
			v.log.Error("-memory-file can't be written: counts would not survive a restart", "error", err)
		case err == nil && failed:
			v.log.Info("-memory-file is written again")
		}
		failed = err != nil
	}, nil, nil)
}
