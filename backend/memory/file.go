package memory

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// DefaultEvery is the time between two writes of a file where Options give none.
const DefaultEvery = 10 * time.Second

// BadFile is what New does if its file can't be read, or is another store's.
type BadFile uint8

const (
	// Refuse makes a store that decides nothing: Check, headgate.New and every request return
	// a *SnapshotError. The file stays as it is.
	Refuse BadFile = iota
	// SetAside makes a store that begins empty. A bad file is kept under another name, which
	// Stats and Ping report. While another store has the file, nothing is written, and then
	// what that has left is kept so.
	SetAside
)

// FileStats are numbers of the file of a store.
type FileStats struct {
	Written time.Time     // when it was written last; zero: not yet
	Took    time.Duration // for how long
	Held    time.Duration // for how long calls of a part of the store waited at most
	Bytes   int64
	Err     error  // why the last write failed, or nothing is written; nil: it succeeded
	Began   error  // why the store began without the counts of its file; nil: it has them
	Aside   string // the name under which that file is kept now; "": it was kept in its place, or there was none
}

// A file is written by one goroutine, which New starts and Close ends. Each snapshot goes to a
// new file beside it, which is synced and renamed. So the file is always a whole snapshot, even
// if the process or the machine stops meanwhile.
//
// A lock on a third file, which stays, keeps other stores out.
type file struct {
	name  string
	every time.Duration
	lock  *os.File // nil while another store has it; used by New, and then by the goroutine
	stop  chan struct{}
	ended chan struct{}

	mu struct {
		sync.Mutex
		stats FileStats
	}
}

func (f *file) stats() FileStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.stats
}

// openFile begins with the file that the options name.
func (s *Store) openFile(opts *Options) error {
	f := &file{name: opts.File, every: cmp.Or(opts.Every, DefaultEvery), stop: make(chan struct{}), ended: make(chan struct{})}
	if f.every < 0 || opts.FileWait < 0 {
		return &backend.InvalidError{What: "Every, FileWait", Value: min(opts.Every, opts.FileWait), Want: "at least 0"}
	}
	err := f.begin(s, opts.FileWait)
	if err != nil && opts.OnBadFile == SetAside {
		err = f.setAside(err)
	}
	if err != nil {
		f.unlock()
		return err
	}
	s.file = f
	go f.run(s)
	return nil
}

// begin waits for the lock, and reads the file. If there is none, the store begins empty.
func (f *file) begin(s *Store, wait time.Duration) (err error) {
	if f.lock, err = f.locked(wait); err != nil {
		return err
	}
	r, err := os.Open(f.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		defer func() { _ = r.Close() }()
		err = regular(r)
	}
	if err != nil {
		return &SnapshotError{File: f.name, Fault: Unreadable, Err: err}
	}
	err = s.Load(bufio.NewReaderSize(r, 1<<20))
	if bad := (*SnapshotError)(nil); errors.As(err, &bad) {
		bad.File = f.name
	}
	return err
}

// regular refuses what is no regular file.
func regular(r *os.File) error {
	info, err := r.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	return err
}

// locked returns the lock, for which it waits for a while.
func (f *file) locked(wait time.Duration) (*os.File, error) {
	for until := time.Now().Add(wait); ; time.Sleep(min(lockEvery, time.Until(until))) {
		lock, err := lockFile(f.name + ".lock")
		switch {
		case err == nil:
			return lock, nil
		case !errors.Is(err, errLocked):
			return nil, &SnapshotError{File: f.name, Fault: Unreadable, Err: err}
		case time.Now().After(until):
			return nil, &SnapshotError{File: f.name, Fault: InUse}
		}
	}
}

// lockEvery is how often the lock is tried.
const lockEvery = 20 * time.Millisecond

var errLocked = errors.New("locked by another store")

func (f *file) unlock() {
	if f.lock != nil {
		_ = f.lock.Close()
	}
}

// setAside keeps the file under another name, unless another store has it or the system gives
// none. It returns an error if the store can't begin empty.
func (f *file) setAside(why error) error {
	bad := (*SnapshotError)(nil)
	if !errors.As(why, &bad) || bad.Fault == Unreadable {
		return why
	}
	f.mu.stats.Began = why
	if bad.Fault == InUse {
		f.mu.stats.Err = why
		return nil
	}
	return f.rename()
}

// rename gives the file another name, which no file has.
func (f *file) rename() error {
	for i := 1; ; i++ {
		aside := fmt.Sprintf("%s.bad-%d", f.name, i)
		_, err := os.Lstat(aside)
		switch {
		//mutant:aside-overwrites-nothing
		case err == nil:
			continue
		case errors.Is(err, fs.ErrNotExist):
			err = os.Rename(f.name, aside)
		}
		if err != nil {
			return &SnapshotError{File: f.name, Fault: Unreadable, Err: err}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.mu.stats.Aside = aside
		return nil
	}
}

// run writes the file once in a while.
func (f *file) run(s *Store) {
	defer close(f.ended)
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.write(s)
		case <-f.stop:
			return
		}
	}
}

// close writes the file for the last time, and lets others have it.
func (f *file) close(s *Store) error {
	close(f.stop)
	<-f.ended
	defer f.unlock()
	return f.write(s)
}

// write writes the file and notes what became of it.
func (f *file) write(s *Store) error {
	begin := time.Now()
	held, n, err := f.written(s)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.stats.Err = err; err == nil {
		f.mu.stats.Written, f.mu.stats.Took, f.mu.stats.Held, f.mu.stats.Bytes = begin, time.Since(begin), held, n
	}
	return err
}

func (f *file) written(s *Store) (held time.Duration, n int64, err error) {
	if err = f.own(); err != nil {
		return 0, 0, err
	}
	// What a stopped process has left of it is in no one's way.
	fresh := f.name + ".new"
	_ = os.Remove(fresh)
	w, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, 0, err
	}
	held, err = s.save(w)
	if err == nil {
		err = w.Sync()
	}
	if info, e := w.Stat(); e == nil {
		n = info.Size()
	}
	if err = cmp.Or(err, w.Close()); err == nil {
		err = os.Rename(fresh, f.name)
	}
	if err != nil {
		_ = os.Remove(fresh)
		return held, n, err
	}
	return held, n, syncFolder(filepath.Dir(f.name))
}

// own takes the lock if another store had it, and keeps what that has left.
func (f *file) own() (err error) {
	if f.lock != nil {
		return nil
	}
	if f.lock, err = f.locked(0); err != nil {
		return err
	}
	if _, err := os.Lstat(f.name); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err = f.rename(); err != nil {
		f.unlock()
		f.lock = nil
	}
	return err
}

// Ping returns what is wrong with the store's file as warnings. A store without one has none.
func (s *Store) Ping(context.Context) (warnings []string, err error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	st := s.Stats().File
	if st.Began != nil {
		warnings = append(warnings, fmt.Sprintf("the store began empty: %v", st.Began))
	}
	if st.Aside != "" {
		warnings = append(warnings, fmt.Sprintf("a file of counts is kept as %q", st.Aside))
	}
	if st.Err != nil {
		warnings = append(warnings, fmt.Sprintf("counts are not written: %v", st.Err))
	}
	return warnings, nil
}
