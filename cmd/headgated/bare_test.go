package main

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bare is a listener that answers a byte, and a client that dials it again and again: what
// these take is the machine's time, and not the server's that is tested.
type bare struct {
	mu struct {
		sync.Mutex
		begun time.Time // the exchange that is running
		all   []exchange
	}
}

// exchange is how long one took beyond its pause, and when it ended.
type exchange struct {
	end  time.Time
	took time.Duration
}

// barePause is between two exchanges.
const barePause = 5 * time.Millisecond

func newBare(ctx context.Context, t testing.TB, running *sync.WaitGroup) *bare {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := &bare{}
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				one := make([]byte, 1)
				_, _ = c.Read(one)
				_, _ = c.Write(one)
			}()
		}
	})
	running.Go(func() {
		defer func() { _ = l.Close() }()
		for ctx.Err() == nil {
			b.exchange(l.Addr().String())
		}
	})
	return b
}

func (b *bare) exchange(address string) {
	begun := time.Now()
	b.mu.Lock()
	b.mu.begun = begun
	b.mu.Unlock()
	time.Sleep(barePause)
	if c, err := net.Dial("tcp", address); err == nil {
		one := make([]byte, 1)
		_, _ = c.Write(one)
		_, _ = c.Read(one)
		_ = c.Close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.mu.all = append(b.mu.all, exchange{now, now.Sub(begun) - barePause})
}

// slowest returns the longest time of an exchange that ran after an instant.
func (b *bare) slowest(since time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	longest := time.Since(b.mu.begun) - barePause
	for i := len(b.mu.all) - 1; i >= 0 && b.mu.all[i].end.After(since); i-- {
		longest = max(longest, b.mu.all[i].took)
	}
	return longest
}
