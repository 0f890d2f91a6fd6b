package main

import (
	"cmp"
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
	log   *slog.Logger
	known func(domain string) bool // whether the limits in force have it
	mu    struct {
		sync.Mutex
		begin time.Time                  // of the minute
		seen  map[string]map[string]bool // subjects by their kind
	}
}

// maxSubjects is the number of subjects of one kind and minute. Clients choose some of them, so
// there may be any number: those above it have no line.
const maxSubjects = 100

// first reports whether a subject is the first of its kind within a minute. Kinds are few, and
// no client makes one: so what clients choose leaves the lines of other kinds.
func (n *notices) first(kind, subject string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); n.mu.seen == nil || now.Sub(n.mu.begin) >= time.Minute {
		n.mu.begin, n.mu.seen = now, map[string]map[string]bool{}
	}
	if n.mu.seen[kind] == nil {
		n.mu.seen[kind] = map[string]bool{}
	}
	//mutant:subjects-bounded
	if n.mu.seen[kind][subject] || len(n.mu.seen[kind]) >= maxSubjects {
		return false
	}
	n.mu.seen[kind][subject] = true
	return true
}

// of returns the kind of what a request of a domain makes. Domains that the limits have are
// their author's: invented ones are another kind.
func (n *notices) of(kind, domain string) string {
	//mutant:invented-domains-apart
	if n.known == nil || !n.known(domain) {
		return kind + ", invented"
	}
	return kind
}

// Invalid implements rls.Observer.
func (m *metrics) Invalid(domain string, reason rls.Reason, err error) {
	m.invalid.WithLabelValues(string(reason)).Inc()
	kind, domain := m.notices.of("invalid", domain), shown(domain)
	//mutant:invalid-once-per-domain
	if m.notices.first(kind, cmp.Or(domain, string(reason))) { // what names no domain, such as no message, has a line per reason
		m.notices.log.Warn("a request is invalid, and the proxy may let it pass", "domain", domain, "reason", string(reason), "error", shown(fmt.Sprint(err)))
	}
}

// NegativeHits implements rls.Observer.
func (m *metrics) NegativeHits(domain string, returned bool) {
	m.negative.Inc()
	//mutant:returned-hits-silent
	if returned {
		return
	}
	kind, domain := m.notices.of("negative", domain), shown(domain)
	if m.notices.first(kind, domain) {
		m.notices.log.Warn("hits are negative, and have no limit that counts them", "domain", domain)
	}
}

// UnknownField implements rls.Observer.
func (m *metrics) UnknownField(message protoreflect.FullName, field protowire.Number, times int) {
	m.unknown.WithLabelValues(string(message)).Add(float64(times))
	//mutant:messages-apart
	if m.notices.first("unknown "+string(message), fmt.Sprint(field)) {
		m.notices.log.Warn("a field is newer than this server, and is not read", "message", string(message), "field", int(field))
	}
}

// shown cuts what a client chose to what a line of a log has room for.
func shown(text string) string {
	const room = 200
	if len(text) > room {
		return text[:room] + "…"
	}
	return text
}
