package headgate

import (
	"log/slog"

	"github.com/headgate-go/headgate/internal/joint"
)

// The methods in this file are for adapters, such as the packages in middleware.

// Value returns the value that the limiter keeps under the key. The first call stores
// what fresh returns; concurrent first calls may call fresh more than once. An adapter
// uses it for what it needs of a limiter per call, such as the text of header fields.
// Each limiter has its own values, also one that With made. A key is best of an
// unexported type. A nil limiter and the zero Limiter keep nothing.
func (l *Limiter) Value(key any, fresh func() any) any {
	if l == nil || l.values == nil {
		return fresh()
	}
	if v, ok := l.values.Load(key); ok {
		return v
	}
	v, _ := l.values.LoadOrStore(key, fresh())
	return v
}

// Logger returns Options.Logger. It is never nil: without one it discards all lines.
func (l *Limiter) Logger() *slog.Logger {
	if l == nil || l.logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l.logger
}

// Twice returns the first policy of p whose count q charges too, and whether there is
// one. They have the same store and the same key, and a policy of p and one of q
// have the same name, algorithm and period.
func (p Part) Twice(q Part) (policy string, twice bool) {
	if p.Call.Key != q.Call.Key || p.Limiter.zero() || q.Limiter.zero() || !joint.Same(p.Limiter.store, q.Limiter.store) {
		return "", false
	}
	for i := range p.Limiter.policies {
		for j := range q.Limiter.policies {
			if p.Limiter.policies[i].Counts(&q.Limiter.policies[j]) {
				return p.Limiter.policies[i].Name, true
			}
		}
	}
	return "", false
}
