package policyfile

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/file"
)

// Watcher follows a file: it has the limiters of what the file contained when
// it was last valid. Make one with Watch, and close it. Safe for concurrent
// use: calls read now, which one goroutine replaces. Only that goroutine uses
// used and seen.
type Watcher struct {
	path  string
	opts  Options
	first *headgate.Limiter // any limiter on the store: With makes the others
	now   atomic.Pointer[current]
	end   chan struct{} // closed by Close
	ended chan struct{} // closed when the reader is gone
	once  sync.Once

	used, seen reading // the reader's: what was last decided on, and the last read
}

// current is what is in use, and what is wrong with what the file says now.
type current struct {
	file     *File
	limiters *Limiters
	err      error
}

// reading is what one read of the file returned.
type reading struct {
	data []byte
	err  error
}

// equal compares bytes, not times: a file may change twice within a clock tick,
// and a restored file has an old time. Errors compare by their text.
func (r reading) equal(other reading) bool {
	return fmt.Sprint(r.err) == fmt.Sprint(other.err) && bytes.Equal(r.data, other.data)
}

// DefaultInterval is how often a file is read where Options name no Interval.
const DefaultInterval = time.Second

// Watch reads the file at path and makes a limiter on s for each plan and
// tenant. It reads the file again at each Options.Interval until Close. A file
// that is not valid now is an error. One that turns invalid later changes
// nothing: Options.Reloaded and Err have the reason.
//
// A change applies to all plans and tenants at once, and to each of them from
// the next call on. Counts stay: see headgate.Limiter.With.
//
// The file is read as a whole and compared, so it does not matter how it is
// changed. It may be by a rename, by a link that points elsewhere (as
// Kubernetes does in a volume), or in place. What is read applies when the next
// read returns the same, so that half of a file, written in place, does not. A
// writer that stands still for two intervals defeats that, and half of a YAML
// file may be valid. So write to a temporary file in the same folder and rename
// it.
func Watch(path string, s backend.Store, opts *Options) (*Watcher, error) {
	if opts == nil {
		opts = &Options{}
	}
	if opts.Interval < 0 {
		return nil, &headgate.InvalidError{What: "Interval", Value: opts.Interval, Want: "above 0, or 0 for 1s"}
	}
	w := &Watcher{path: path, opts: *opts, end: make(chan struct{}), ended: make(chan struct{})}
	w.used = w.read()
	w.seen = w.used
	file, err := w.parse(w.used)
	if err != nil {
		return nil, err
	}
	if w.first, err = usable(s, opts.Limiter); err != nil {
		return nil, err
	}
	limiters, err := file.limiters(w.first)
	if err != nil {
		return nil, err
	}
	w.now.Store(&current{file, limiters, nil})
	go w.follow(cmp.Or(opts.Interval, DefaultInterval))
	return w, nil
}

// Limiters returns all limiters by what the file says now. It is as cheap as a look-up in a
// map: call it for each call, and do not keep what it returns.
func (w *Watcher) Limiters() *Limiters { return w.current().limiters }

// File returns what is in use.
func (w *Watcher) File() *File { return w.current().file }

// Err returns why what the file says now is not in use; nil where it is.
func (w *Watcher) Err() error { return w.current().err }

// current returns an error's list for a zero Watcher, so that its methods don't
// panic.
func (w *Watcher) current() *current {
	if c := w.now.Load(); c != nil {
		return c
	}
	return &current{&File{}, &Limiters{}, errZero}
}

var errZero = &headgate.InvalidError{What: "watcher", Value: "a zero Watcher", Want: "one that Watch returned"}

// Close ends the reading. The limiters stay as they are. Closing twice is
// closing once.
func (w *Watcher) Close() error {
	if w.end == nil {
		return nil
	}
	w.once.Do(func() { close(w.end) })
	<-w.ended
	return nil
}

// follow is the one goroutine of a Watcher. It reads on a ticker rather than by
// inotify, which misses renames of a parent directory and network file systems.
func (w *Watcher) follow(interval time.Duration) {
	defer close(w.ended)
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-w.end:
			return
		case <-t.C:
			w.poll()
		}
	}
}

// poll reads the file once. It decides on what two reads in a row have
// returned.
func (w *Watcher) poll() {
	r := w.read()
	settled := r.equal(w.seen)
	w.seen = r
	if !settled || r.equal(w.used) {
		return
	}
	w.used = r
	w.report(w.swap(r))
}

// report calls Reloaded. A panic in it does not end the process: Err has it until the
// next change.
func (w *Watcher) report(err error) {
	if w.opts.Reloaded == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			next := *w.now.Load()
			next.err = fmt.Errorf("headgate: policy file: Reloaded panicked: %v", p)
			w.now.Store(&next)
		}
	}()
	w.opts.Reloaded(err)
}

// swap puts what was read in use, all at once, or keeps what is in use.
// Limiters are made before anything changes, so a file that is half right
// changes nothing.
func (w *Watcher) swap(r reading) error {
	next := *w.now.Load()
	file, err := w.parse(r)
	if err == nil {
		var limiters *Limiters
		if err = file.spreadsMore(next.file); err == nil {
			limiters, err = file.limiters(w.first)
		}
		if err == nil {
			next.file, next.limiters = file, limiters
		}
	}
	next.err = err
	w.now.Store(&next)
	return err
}

// spreadsMore returns an error if a list is in several shards which was not in the earlier file.
// A reservation of it, or a call of several keys, was allowed and would be refused.
func (f *File) spreadsMore(earlier *File) error {
	check := func(kind, name string, now, before list) error {
		//mutant:old-file-reserves
		if now.shards > 1 && before.shards < 2 && len(before.policies)+len(before.scoped) > 0 {
			err := &headgate.InvalidError{What: "shards of " + kind, Value: name, Want: "none, as in the file in use: start the service again, or use borrow"}
			return fmt.Errorf("headgate: policy file: %w", err)
		}
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(f.plans)) {
		if err := check("plan", name, f.plans[name], earlier.plans[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.tenants)) {
		if err := check("tenant", name, f.list(name), earlier.list(name)); err != nil {
			return err
		}
	}
	return nil
}

// read returns an error as a reading. So a file that vanishes has to be missing
// at two reads before that counts.
func (w *Watcher) read() reading {
	data, err := file.Read(w.path)
	return reading{data, err}
}

func (w *Watcher) parse(r reading) (*File, error) {
	if r.err != nil {
		return nil, unreadable(r.err)
	}
	return Parse(w.path, r.data, &w.opts)
}
