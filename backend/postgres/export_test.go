package postgres

import "context"

// SetClock makes a clock of µs stand in for the server's.
func (s *Store) SetClock(now func() int64) {
	if s.clock.Store(&now); now == nil {
		s.clock.Store(nil)
	}
}

// Sweep sweeps at an instant.
func (s *Store) Sweep(ctx context.Context, n int, now int64) error { return s.sweep(ctx, n, &now) }

// RowID is the primary key of a key's row.
func RowID(key string) string { return rowID(key, "") }

// SweepLock is the number of the lock of who sweeps.
func (s *Store) SweepLock() int64 { return s.sweepLock() }

// MaxCallers is the maximum number of calls that wait.
const MaxCallers = maxCallers

// Serves reports whether the server lets a client in and answers.
func (s *Store) Serves() bool { return s.serves() }
