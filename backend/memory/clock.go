package memory

import "time"

// Now returns the time as the store counts: Options.Now's, where there is one.
func (s *Store) Now() time.Time { return time.UnixMicro(s.now()) }
