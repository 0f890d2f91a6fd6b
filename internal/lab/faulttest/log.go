package faulttest

import (
	"bytes"
	"strings"
	"sync"
)

// Log is a log that a test reads while it is written. The zero Log is empty. It is safe for
// concurrent use.
type Log struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
	}
}

// Write appends b.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.Buffer.Write(b)
}

// String returns what was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.Buffer.String()
}

// Lines returns the lines that were written.
func (l *Log) Lines() []string { return strings.Split(strings.TrimSpace(l.String()), "\n") }
