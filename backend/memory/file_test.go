package memory

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// daily takes one unit of a key per day and returns the units that are used.
func daily(t *testing.T, s *Store, key string) int64 {
	t.Helper()
	return ask(t, s, backend.Take, backend.Group{Key: key, Policies: []backend.Policy{by("day", algo.FixedWindow(algo.PerDay(100)))}, Cost: 1}).Used
}

func inFile(t *testing.T, name string, opts Options) *Store {
	t.Helper()
	opts.File = name
	s := New(&opts)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestFile: counts outlive their store, by Close and by a write each Every.
func TestFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "counts")
	s := inFile(t, name, Options{})
	require.Equal(t, int64(1), daily(t, s, "k"))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	info, err := os.Stat(name)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	s = inFile(t, name, Options{Every: time.Millisecond})
	require.Equal(t, int64(2), daily(t, s, "k"))
	now := time.Now()
	require.Eventually(t, func() bool { return s.Stats().File.Written.After(now) }, 10*time.Second, time.Millisecond)
	st := s.Stats().File
	require.NoError(t, st.Err)
	require.Positive(t, st.Bytes)
	warnings, err := s.Ping(context.Background())
	require.NoError(t, err)
	require.Empty(t, warnings)
	other := New(nil) // reads what the process would leave that is killed now
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, other.Load(bytes.NewReader(text)))
	require.Equal(t, int64(3), daily(t, other, "k"))
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Do(context.Background(), &backend.Request{}, &backend.Decision{}), backend.ErrClosed)
}

// TestBadFile: a store refuses it, or keeps it under another name that no file has.
func TestBadFile(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "counts")
	require.NoError(t, inFile(t, name, Options{}).Close())
	good, err := os.ReadFile(name)
	require.NoError(t, err)
	garbled := bytes.Clone(good)
	garbled[len(garbled)/2]++
	for i, c := range []struct {
		text  []byte
		fault Fault
	}{{nil, Cut}, {good[:len(good)-1], Cut}, {garbled, Garbled}, {[]byte("user:1 5\n"), Foreign}} {
		require.NoError(t, os.WriteFile(name, c.text, 0o600))
		refused := inFile(t, name, Options{})
		var bad *SnapshotError
		require.ErrorAs(t, refused.Check([]backend.Policy{by("p", kinds[0])}), &bad)
		require.Equal(t, SnapshotError{File: name, Fault: c.fault}, *bad)
		require.ErrorContains(t, bad, name)
		require.Error(t, refused.Close())
		kept, err := os.ReadFile(name)
		require.NoError(t, err)
		require.True(t, bytes.Equal(c.text, kept), "the file of a refused store stays")

		s := inFile(t, name, Options{OnBadFile: SetAside})
		require.Equal(t, int64(1), daily(t, s, "k"))
		st := s.Stats().File
		require.ErrorAs(t, st.Began, &bad)
		require.Equal(t, name+".bad-"+string(rune('1'+i)), st.Aside)
		kept, err = os.ReadFile(st.Aside)
		require.NoError(t, err)
		require.True(t, bytes.Equal(c.text, kept))
		warnings, err := s.Ping(context.Background())
		require.NoError(t, err)
		require.Len(t, warnings, 2)
		require.NoError(t, s.Close())
		s = inFile(t, name, Options{})
		require.Equal(t, int64(2), daily(t, s, "k"))
		require.NoError(t, s.Close())
	}
}

// TestNoFile: what is no file, or lies in no folder, is an error that names it, whatever the
// options say.
func TestNoFile(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{folder, filepath.Join(folder, "none", "counts")} {
		s := inFile(t, name, Options{OnBadFile: SetAside})
		var bad *SnapshotError
		require.ErrorAs(t, s.Check([]backend.Policy{by("p", kinds[0])}), &bad)
		require.Equal(t, Unreadable, bad.Fault)
		require.ErrorContains(t, bad, name)
	}
	var invalid *backend.InvalidError
	require.ErrorAs(t, inFile(t, filepath.Join(folder, "f"), Options{Every: -1}).Check(nil), &invalid)
	require.ErrorAs(t, inFile(t, filepath.Join(folder, "f"), Options{FileWait: -1}).Check(nil), &invalid)
}

// TestTwoStoresOfOneFile: the second one is refused, waits for the first one's Close, or begins
// empty, writes nothing meanwhile, and then keeps what the first has left.
func TestTwoStoresOfOneFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "counts")
	first := inFile(t, name, Options{})
	require.Equal(t, int64(1), daily(t, first, "k"))
	var bad *SnapshotError
	require.ErrorAs(t, inFile(t, name, Options{}).Check(nil), &bad)
	require.Equal(t, InUse, bad.Fault)

	beside := inFile(t, name, Options{OnBadFile: SetAside, Every: time.Millisecond})
	require.Equal(t, int64(1), daily(t, beside, "k"))
	require.Eventually(t, func() bool { return beside.Stats().File.Err != nil }, 10*time.Second, time.Millisecond)
	_, err := os.Stat(name)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorAs(t, beside.Close(), &bad)
	require.Equal(t, InUse, bad.Fault)

	next := make(chan *Store)
	go func() { next <- New(&Options{File: name, FileWait: time.Minute}) }()
	select {
	case <-next:
		t.Fatal("New has not waited")
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, first.Close())
	second := <-next
	defer func() { _ = second.Close() }()
	require.Equal(t, int64(2), daily(t, second, "k"))

	beside = inFile(t, name, Options{OnBadFile: SetAside, Every: time.Millisecond})
	require.Equal(t, int64(1), daily(t, beside, "k"))
	require.NoError(t, second.Close())
	require.Eventually(t, func() bool { return beside.Stats().File.Aside != "" && beside.Stats().File.Err == nil }, 10*time.Second, time.Millisecond)
	require.NoError(t, beside.Close())
	left := New(nil)
	text, err := os.ReadFile(beside.Stats().File.Aside)
	require.NoError(t, err)
	require.NoError(t, left.Load(bytes.NewReader(text)))
	require.Equal(t, int64(3), daily(t, left, "k"))
}

// TestFailedWrite is an error of Close, and leaves the file as it was.
func TestFailedWrite(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "counts")
	s := inFile(t, name, Options{})
	daily(t, s, "k")
	require.NoError(t, s.file.write(s))
	before, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(name+".new", 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(name+".new", "x"), nil, 0o600)) // so that it can't be removed
	require.Error(t, s.Close())
	require.Error(t, s.Stats().File.Err)
	after, err := os.ReadFile(name)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after))
}
