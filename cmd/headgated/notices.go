package main

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// notices logs what arrives and is not served as its sender means it: at most one line per
// subject and minute. The metrics have how many there were.
type notices struct {
	log *slog.Logger
	mu  struct {
		sync.Mutex
		begin time.Time // of the minute
		seen  map[string]bool
	}
}

// maxSubjects is the number of subjects of one minute. Clients choose them, so there may be
// any number: those above it have no line.
const maxSubjects = 100

// first reports whether a subject is the first of its kind within a minute.
func (n *notices) first(subject string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); n.mu.seen == nil || now.Sub(n.mu.begin) >= time.Minute {
		n.mu.begin, n.mu.seen = now, map[string]bool{}
	}
	//mutant:subjects-bounded
	if n.mu.seen[subject] || len(n.mu.seen) >= maxSubjects {
		return false
	}
	n.mu.seen[subject] = true
	return true
}

// Invalid implements rls.Observer.
func (m *metrics) Invalid(domain string, reason rls.Reason, err error) {
	m.invalid.WithLabelValues(string(reason)).Inc()
	if m.notices.first("invalid " + domain) {
		m.notices.log.Warn("a request is invalid, and the proxy may let it pass", "domain", shown(domain), "reason", string(reason), "error", err)
	}
}

// NegativeHits implements rls.Observer.
func (m *metrics) NegativeHits(domain string) {
	m.negative.Inc()
	if m.notices.first("negative " + domain) {
		m.notices.log.Warn("hits are negative, and charge nothing", "domain", shown(domain))
	}
}

// UnknownField implements rls.Observer.
func (m *metrics) UnknownField(message protoreflect.FullName, field protowire.Number, times int) {
	m.unknown.WithLabelValues(string(message)).Add(float64(times))
	if m.notices.first(fmt.Sprint("unknown ", message, field)) {
		m.notices.log.Warn("a field is newer than this server, and is not read", "message", string(message), "field", int(field))
	}
}

// shown cuts what a client chose to what a line of a log has room for.
func shown(domain string) string {
	const room = 100
	if len(domain) > room {
		return domain[:room] + "…"
	}
	return domain
}
