package main

import (
	"sync"

	"github.com/headgate-go/headgate/cmd/headgated/internal/limits"
	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"github.com/prometheus/client_golang/prometheus"
)

// maxDescriptors is the number of the files' paths with series of their own. It is also that of
// the labels with values of requests, which clients choose. Descriptors share them evenly, so
// that the values of one take none of another.
const (
	maxDescriptors   = 1000 / 3 // a series per outcome: 1,000 of each
	otherDescriptors = "_OTHER" // paths that have no series of their own
)

// maxValues is how many bytes the values of a request may add to a path. A client may send a
// header of 60 KiB, and each scrape would have it once per outcome.
const maxValues = 200

// series are the counters of descriptors, by label. A label with values counts as only its path
// in three cases. Its descriptor has no series left, it is the label of another path, or it is long.
type series struct {
	vec *prometheus.CounterVec
	all sync.Map // label → *outcomes
	mu  struct {
		sync.Mutex
		paths map[string]int // those of the limits in force, with how many labels have values
		share int            // how many a path may have
	}
}

// outcomes are the counters of a label.
type outcomes struct {
	path   string
	counts [rls.ShadowOverLimit + 1]prometheus.Counter
}

// add counts a decision.
func (s *series) add(path, label string, o rls.Outcome) {
	c, ok := s.all.Load(label)
	if !ok || c.(*outcomes).path != path {
		c = s.of(path, label)
	}
	c.(*outcomes).counts[o].Inc()
}

// of returns the counters of a label that has none yet, or none of its own.
func (s *series) of(path, label string) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, has := s.mu.paths[path]
	if !has {
		return s.create(otherDescriptors, otherDescriptors)
	}
	c, taken := s.all.Load(label)
	switch {
	case taken && c.(*outcomes).path == path: // by another goroutine, just now
		return c
	//mutant:label-of-one-path
	case taken:
		return s.create(path, path)
	//mutant:values-share-evenly
	case own >= s.mu.share:
		return s.create(path, path)
	//mutant:long-values-are-their-path
	case len(label) > len(path)+maxValues:
		return s.create(path, path)
	}
	s.mu.paths[path]++
	return s.create(path, label)
}

// create returns the counters of a label, which are made once.
func (s *series) create(path, label string) any {
	if c, ok := s.all.Load(label); ok {
		return c
	}
	c := &outcomes{path: path}
	for i := range c.counts {
		c.counts[i] = s.vec.WithLabelValues(label, outcomeNames[i])
	}
	s.all.Store(label, c)
	return c
}

// reserve makes the series of the paths that come into force, before any request has a value. It
// deletes those of paths that have left, and of values above the new share.
func (s *series) reserve(labels []limits.Label) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.mu.paths
	s.mu.paths = map[string]int{}
	valued := 0
	for _, l := range labels[:min(len(labels), maxDescriptors)] {
		s.mu.paths[l.Path] = before[l.Path]
		if l.Valued {
			valued++
		}
	}
	s.mu.share = maxDescriptors / max(valued, 1)
	for path, values := range s.mu.paths {
		if values > s.mu.share {
			s.mu.paths[path] = 0
		}
	}
	s.all.Range(func(label, c any) bool {
		path := c.(*outcomes).path
		values, has := s.mu.paths[path]
		//mutant:series-leave
		if gone := !has && path != otherDescriptors; gone || label != path && values == 0 {
			s.remove(label.(string))
		}
		return true
	})
	for path := range s.mu.paths {
		s.take(path)
	}
}

// take gives a path its series, also if they were those of another path's value.
func (s *series) take(path string) {
	if c, ok := s.all.Load(path); ok && c.(*outcomes).path != path {
		s.mu.paths[c.(*outcomes).path]--
		s.remove(path)
	}
	s.create(path, path)
}

func (s *series) remove(label string) {
	s.all.Delete(label)
	for _, outcome := range outcomeNames[:rls.ShadowOverLimit+1] {
		s.vec.DeleteLabelValues(label, outcome)
	}
}
