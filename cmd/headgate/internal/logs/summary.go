package logs

import "time"

// Summary is what any report says of the logs that it is about.
type Summary struct {
	Sources []Source  `json:"sources"`
	Key     string    `json:"key"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Calls   int64     `json:"calls"`
	Keys    int64     `json:"keys"`
	Step    int64     `json:"clock_us"` // the coarsest step of the logs' clocks
	Within  string    `json:"within"`   // how calls of one instant were spread

	from, at int64
	seen     Column[bool] // by key
}

// Add counts a call.
func (s *Summary) Add(c *Call) {
	if s.Calls == 0 {
		s.from = c.At
	}
	s.Calls++
	s.at, s.Step = c.At, max(s.Step, int64(c.Unit))
	if seen := s.seen.Grown(c.Key); !*seen {
		*seen = true
		s.Keys++
	}
}

// Of returns the summary with what the stream says of itself.
func (s *Summary) Of(stream *Stream) Summary {
	of := Summary{Sources: stream.Sources(), Key: stream.Key, Calls: s.Calls, Keys: s.Keys, Step: s.Step, Within: stream.Within}
	if s.Calls > 0 {
		of.From, of.To = time.UnixMicro(s.from).UTC(), time.UnixMicro(s.at).UTC()
	}
	return of
}
