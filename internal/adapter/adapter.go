// Package adapter is what the adapters of a limiter need of it, such as the packages in
// middleware. Users need none of it, so it is no part of package headgate.
package adapter

import (
	"log/slog"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/joint"
)

// Limiter is what an adapter sees of a limiter. Adapters do not write it. The zero Limiter is
// that of a nil or a zero headgate.Limiter: it keeps no values.
type Limiter struct {
	Log      *slog.Logger     // Options.Logger; nil: none
	Store    backend.Store    // nil: the limiter is zero
	Policies []backend.Policy // never written
	Shards   int              // sub-keys of a key; below 2: none
	Borrow   time.Duration    // the term of loans; 0: none
	Keys     *Keys            // of all limiters on the store
	Layers   any              // those that With shares: limiters with equal Layers have one Stats
	Calls
	values sync.Map
}

// of finds what an adapter sees of a *headgate.Limiter, which this package can't import.
var of func(limiter any) *Limiter

// Register sets how Of finds what it returns. Package headgate calls it once.
func Register(f func(limiter any) *Limiter) { of = f }

// Of returns what an adapter sees of a *headgate.Limiter. It is never nil.
func Of(limiter any) *Limiter { return of(limiter) }

// Value returns the value that the limiter keeps under the key. The first call stores
// what fresh returns; concurrent first calls may call fresh more than once. An adapter
// uses it for what it needs of a limiter per call, such as the text of header fields.
// Each limiter has its own values, also one that With made. A key is best of an
// unexported type.
func (l *Limiter) Value(key any, fresh func() any) any {
	if l.Store == nil {
		return fresh()
	}
	if v, ok := l.values.Load(key); ok {
		return v
	}
	v, _ := l.values.LoadOrStore(key, fresh())
	return v
}

// Logger returns the limiter's log. It is never nil: without one it discards all lines.
func (l *Limiter) Logger() *slog.Logger {
	if l.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l.Log
}

// Twice returns the first policy of l that charges the same count of a key as one of m does,
// and whether there is one. Both have the same store, name, algorithm and period.
func (l *Limiter) Twice(m *Limiter) (policy string, twice bool) {
	if l.Store == nil || m.Store == nil || !joint.Same(l.Store, m.Store) {
		return "", false
	}
	for i := range l.Policies {
		for j := range m.Policies {
			if l.Policies[i].Counts(&m.Policies[j]) {
				return l.Policies[i].Name, true
			}
		}
	}
	return "", false
}
