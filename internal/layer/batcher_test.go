package layer_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// far is a store that answers when full are waiting for it, or nobody else
// comes.
type far struct {
	backend.Store
	full      int64
	now, most atomic.Int64
}

func (f *far) Do(_ context.Context, r *backend.Request, d *backend.Decision) error {
	n := f.now.Add(1)
	defer f.now.Add(-1)
	for old := f.most.Load(); n > old && !f.most.CompareAndSwap(old, n); old = f.most.Load() {
	}
	if n == f.full {
		time.Sleep(5 * time.Millisecond) // for one too many, who does not come
	}
	for end := time.Now().Add(20 * time.Millisecond); f.most.Load() < f.full && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	d.Policy = r.Key
	return nil
}

type near struct{ *far }

func (near) Shared() *layer.Shared { return &layer.Shared{Local: true} }

type many struct{ *far }

func (many) DoAll(_ context.Context, rs []backend.Request, answers []backend.Answer) {
	for i := range rs {
		answers[i].Decision.Policy = rs[i].Key
	}
}

// TestDoAll asks sixteen at once, one after the other in this process, and a
// store that has rounds for all of them.
func TestDoAll(t *testing.T) {
	for _, c := range []struct {
		name    string
		n       int
		store   func(*far) backend.Store
		abreast int64
	}{
		{"far", 100, func(f *far) backend.Store { return f }, 16},
		{"few", 3, func(f *far) backend.Store { return f }, 3},
		{"none", 0, func(f *far) backend.Store { return f }, 0},
		{"in this process", 10, func(f *far) backend.Store { return near{f} }, 1},
		{"rounds", 10, func(f *far) backend.Store { return many{f} }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, rs, answers := &far{full: c.abreast}, make([]backend.Request, c.n), make([]backend.Answer, c.n)
			for i := range rs {
				rs[i].Key = string(rune('a' + i))
			}
			layer.DoAll(context.Background(), c.store(f), rs, answers)
			require.Equal(t, c.abreast, f.most.Load())
			for i := range rs {
				require.Equal(t, rs[i].Key, answers[i].Decision.Policy)
			}
		})
	}
}

type leaving struct{ *far }

// Do ends its goroutine for the key "a", and takes its time for others.
func (l leaving) Do(_ context.Context, r *backend.Request, d *backend.Decision) error {
	if r.Key == "a" {
		runtime.Goexit()
	}
	time.Sleep(time.Millisecond)
	d.Policy = r.Key
	return nil
}

// TestDoAllWaits: when DoAll is left, nobody writes an answer any more.
func TestDoAllWaits(t *testing.T) {
	for range 20 {
		rs, answers, left := []backend.Request{{}, {}}, make([]backend.Answer, 2), make(chan struct{})
		rs[0].Key, rs[1].Key = "a", "b"
		go func() {
			defer close(left)
			layer.DoAll(context.Background(), leaving{&far{}}, rs, answers)
		}()
		<-left
		require.Equal(t, "b", answers[1].Decision.Policy)
	}
}
