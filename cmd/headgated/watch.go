package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/cmd/headgated/internal/limits"
	"github.com/headgate-go/headgate/internal/adapter"
)

// watcher follows the files of limits. One goroutine reads; requests load what is in use.
type watcher struct {
	settings *settings
	metrics  *metrics
	log      *slog.Logger
	base     *headgate.Limiter // any limiter on the store: its With makes the others
	// overrides is another, for the limits that requests bring.
	overrides *headgate.Limiter
	page      *livePage
	now       atomic.Pointer[limits.Config]
	views     atomic.Pointer[views] // of now

	again      chan struct{} // read now
	used, seen reading       // the reader's
	inForce    reading       // what now was made of: the reader's too
}

// has reports whether the limits in force have a domain.
func (w *watcher) has(domain string) bool {
	config := w.now.Load()
	return config != nil && config.Has(domain)
}

// reading is what one look at the files returned.
type reading struct {
	files           []limits.File
	warnings        []string // of what was left out
	err             error
	source, version string // of -xds; "" is the files themselves, and their digest
}

func (r reading) equal(other reading) bool {
	return fmt.Sprint(r.err) == fmt.Sprint(other.err) && r.source == other.source && r.version == other.version && limits.Same(r.files, other.files)
}

func (w *watcher) read() reading {
	files, warnings, err := limits.Read(w.settings.config)
	return reading{files: files, warnings: warnings, err: err}
}

// load reads the files for the first time. With -force-start a mistake in them is no error.
func (w *watcher) load() error {
	w.used = w.read()
	w.seen = w.used
	err := w.apply(w.used)
	if err != nil && w.settings.forceStart {
		w.log.Error("limits: there are none, and requests are UNAVAILABLE until the files are mended", "error", err)
		return nil
	}
	return err
}

// apply parses what was read and uses it as a whole. A mistake changes nothing.
func (w *watcher) apply(r reading) error {
	config, err := w.parse(r)
	if err != nil {
		w.metrics.load("limits", err)
		return err
	}
	config.Origin = originOf(r)
	//mutant:paths-have-series
	w.metrics.descriptors.reserve(config.Labels())
	w.page.reserve(config)
	w.now.Store(config)
	w.views.Store(viewsOf(config))
	w.inForce = r
	w.metrics.load("limits", nil)
	return nil
}

func (w *watcher) parse(r reading) (*limits.Config, error) {
	if r.err != nil {
		return nil, r.err
	}
	s := w.settings
	config, err := limits.Parse(r.files, limits.Options{
		New: func(p headgate.Policy, borrow time.Duration) (*headgate.Limiter, error) {
			return w.limiter(w.base, p, borrow)
		},
		NewOverride: func(p headgate.Policy, borrow time.Duration) (*headgate.Limiter, error) {
			return w.limiter(w.overrides, p, borrow)
		},
		MergeDomains: s.mergeDomains,
		Algorithm:    s.algorithm, OnFailure: s.onFailure, Charge: s.charge, Borrow: s.borrow,
		Shadow: s.shadow, Quota: s.quota,
	})
	if err != nil {
		return nil, err
	}
	for _, warning := range slices.Concat(r.warnings, config.Warnings) {
		w.log.Warn("limits: " + warning)
	}
	return config, nil
}

// limiter returns the limiter of a policy that borrows for a term; 0: it does not. An error of a local one names the flag.
func (w *watcher) limiter(base *headgate.Limiter, p headgate.Policy, borrow time.Duration) (*headgate.Limiter, error) {
	l, err := base.With(p)
	if err == nil && borrow > 0 {
		l, err = l.WithBorrow(borrow)
	}
	if err != nil && p.OnFailure == headgate.FailLocal {
		return nil, fmt.Errorf("on_failure is local, with -instances %d: %w", w.settings.instances, err)
	}
	if err == nil && w.settings.page {
		adapter.Of(l).Own() // see livePage
	}
	return l, err
}

// follow reads the files at each interval until ctx ends. What is read applies when the
// next reading is the same, so that files which are being written do not.
func (w *watcher) follow(ctx context.Context) {
	follow(ctx, w.settings.interval, w.poll, w.again, w.reread)
}

// follow calls look at each interval, and reread for each word of again, until ctx ends.
func follow(ctx context.Context, interval time.Duration, look func(), again <-chan struct{}, reread func()) {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			look()
		case <-again:
			reread()
		}
	}
}

func (w *watcher) poll() {
	r := w.read()
	stable := r.equal(w.seen)
	if w.seen = r; !stable || r.equal(w.used) {
		return
	}
	w.useRead(r)
}

// reread applies what the files have now, without a second reading.
func (w *watcher) reread() {
	if w.seen = w.read(); !w.seen.equal(w.used) {
		w.useRead(w.seen)
	}
}

// useRead uses a reading of files, or logs why it does not.
func (w *watcher) useRead(r reading) {
	w.used = r
	if err := w.use(r); err != nil {
		w.refused(r, err)
	}
}

// refused logs why a reading is not used.
func (w *watcher) refused(r reading, err error) {
	o := originOf(r)
	w.log.Error("limits: refused, those in force stay", "source", o.Source, "version", o.Version, "error", err)
}

// use applies a reading, and logs it if it is in force. That of the limits in force changes
// nothing: a discovery service sends it on each new stream, and it may follow a refused one.
func (w *watcher) use(r reading) error {
	//mutant:sent-again-unchanged
	if r.equal(w.inForce) {
		w.metrics.load("limits", nil)
		w.log.Info("limits: unchanged", "files", len(r.files), "version", w.now.Load().Origin.Version)
		return nil
	}
	if err := w.apply(r); err != nil {
		return err
	}
	//mutant:no-limits-warned
	if w.now.Load().Empty() { // by -xds: a folder without files is refused
		w.log.Warn("limits: the discovery service has none, so every request passes")
		return nil
	}
	w.log.Info("limits: loaded", "files", len(r.files), "version", w.now.Load().Origin.Version)
	return nil
}
