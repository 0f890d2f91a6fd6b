package faulttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// Secrets makes calls by all verbs on a store that can't decide, until its circuit is
// open and longer. It fails the test if the secret is in an error or a cause of it. Nor
// may it be in Ping's, in an event, in a circuit's name or in a line of the log. It
// returns all these texts.
func Secrets(t *testing.T, s backend.Store, secret string) (texts string) {
	seen := &witness{}
	p := headgate.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(100)), OnFailure: headgate.FailClosed}
	l, err := headgate.New(s, []headgate.Policy{p}, &headgate.Options{
		Observer: func(e headgate.Event) { seen.add(e.Err, e.Decision.Err, fmt.Sprintf("%+v", e)) },
		Logger:   slog.New(slog.NewTextHandler(seen, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	seen.add(err)
	if err == nil {
		calls(l, seen)
	}
	if p, ok := s.(interface {
		Stored(context.Context, string) ([]backend.Stored, error)
	}); ok {
		_, err := p.Stored(context.Background(), "k")
		seen.add(err)
	}
	texts = seen.String()
	require.NotContains(t, texts, secret)
	return texts
}

// calls makes each kind of call, and waits for the circuit's event.
func calls(l *headgate.Limiter, seen *witness) {
	ctx := context.Background()
	for range 12 {
		d, err := l.Allow(ctx, "k")
		seen.add(err, d.Err, fmt.Sprintf("%+v", d))
	}
	r, d, err := l.Reserve(ctx, headgate.Call{Key: "k"})
	seen.add(err, d.Err)
	if r != nil {
		seen.add(r.Commit(ctx, 1))
	}
	within, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	d, err = l.Wait(within, "k")
	seen.add(err, d.Err, l.Reset(ctx, "k"))
	within, cancel = context.WithTimeout(ctx, time.Second)
	defer cancel()
	warnings, err := l.Ping(within)
	seen.add(err, fmt.Sprint(warnings), fmt.Sprintf("%+v", l.Stats()))
	for begin := time.Now(); time.Since(begin) < 200*time.Millisecond && !strings.Contains(seen.String(), "headgate: circuit"); {
		time.Sleep(time.Millisecond) // a goroutine reports the circuit
	}
}

// witness collects texts.
type witness struct {
	sync.Mutex
	bytes.Buffer
}

func (w *witness) Write(line []byte) (int, error) {
	w.add(string(line))
	return len(line), nil
}

func (w *witness) String() string {
	w.Lock()
	defer w.Unlock()
	return w.Buffer.String()
}

func (w *witness) add(texts ...any) {
	w.Lock()
	defer w.Unlock()
	for _, text := range texts {
		if err, ok := text.(error); ok {
			text = strings.Join(chain(err), "\n")
		}
		fmt.Fprintln(&w.Buffer, text)
	}
}

// chain returns the texts of an error and of all that it wraps.
func chain(err error) (texts []string) {
	if err == nil {
		return nil
	}
	texts = append(texts, fmt.Sprintf("%v %+v", err, err))
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			texts = append(texts, chain(e)...)
		}
	}
	return append(texts, chain(errors.Unwrap(err))...)
}
