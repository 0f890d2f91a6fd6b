package main

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/cmd/headgated/internal/limits"
	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"github.com/headgate-go/headgate/internal/adapter"
	"github.com/headgate-go/headgate/middleware/statuspage"
	"github.com/headgate-go/headgate/policyfile"
)

// livePage counts what became of descriptors, for the page. The limiters do not know that. Hits that
// are charged always are never denied by a limiter, and what is only looked at is no call of one. The
// zero livePage counts nothing.
type livePage struct {
	page *statuspage.Page
	keys *adapter.Keys
	rows atomic.Pointer[map[string]*pageRow] // by path; the map is never written
}

// observers receive what becomes of requests: the metrics all, the page what became of descriptors.
type observers struct {
	*metrics
	*livePage
}

// pageRow is a limit of the files, or those that the requests of a domain bring.
type pageRow struct {
	rule                      string
	passed, denied, undecided atomic.Int64
}

// openPage makes the page, unless a flag leaves it out.
func (v *server) openPage(base *headgate.Limiter) {
	if !v.settings.page {
		return
	}
	v.livePage.keys = adapter.Of(base).Keys
	adapter.Of(base).Own() // its calls are probes
	v.livePage.page = statuspage.New(base, v.watcher.overrides)
	v.livePage.page.Keys = v.settings.pageKeys
	v.livePage.page.Limits = v.pageLimits
	if v.settings.limited() {
		v.livePage.page.Origin = v.pageOrigin
	}
}

func (p *livePage) close() {
	if p.page != nil {
		p.page.Close()
	}
}

// reserve makes the rows of limits that come into force. Those that stay keep their counts.
func (p *livePage) reserve(config *limits.Config) {
	rows := map[string]*pageRow{}
	add := func(path, rule string) {
		r := &pageRow{rule: rule}
		if before := p.row(path); before != nil && before.rule == rule {
			r = before
		}
		rows[path] = r
	}
	for _, r := range config.Rules() {
		add(r.Label, ruleText(limitOf(r)))
	}
	for _, l := range config.Labels() {
		if _, ok := rows[l.Path]; !ok {
			add(l.Path, "limits that requests bring")
		}
	}
	p.rows.Store(&rows)
}

func (p *livePage) row(path string) *pageRow {
	if rows := p.rows.Load(); rows != nil {
		return (*rows)[path]
	}
	return nil
}

// ruleText is a limit in words, such as "100 per 1h0m0s, fixed-window, fails open".
func ruleText(l limitInForce) string {
	if l.Unlimited {
		return "unlimited"
	}
	text := fmt.Sprintf("%d per %s, %s", l.RequestsPerUnit, l.Period, l.Algorithm)
	if l.OnFailure != "unavailable" {
		text += ", fails " + l.OnFailure
	}
	if l.Shadow {
		text += ", shadow"
	}
	if l.Quota {
		text += ", quota"
	}
	return text
}

// pageLimits returns the limits of the files, and those of the plans.
func (v *server) pageLimits() (all []statuspage.Limit) {
	if rows := v.livePage.rows.Load(); rows != nil {
		for path, r := range *rows {
			if strings.HasSuffix(path, limits.OverrideLabel("")) && r.total() == 0 {
				continue
			}
			all = append(all, statuspage.Limit{Name: path, Rule: r.rule, Counts: func() (passed, denied, undecided int64) {
				return r.passed.Load(), r.denied.Load(), r.undecided.Load()
			}})
		}
	}
	if v.policies != nil {
		var plans []*headgate.Limiter
		for _, name := range append(v.policies.File().Plans(), "") {
			parts, _ := v.policies.Limiters().PlanFirst(name, "", policyfile.Use{})
			for _, p := range parts {
				plans = append(plans, p.Limiter)
			}
		}
		all = append(all, statuspage.LimitsOf(plans...)...)
	}
	return all
}

func (r *pageRow) total() int64 { return r.passed.Load() + r.denied.Load() + r.undecided.Load() }

// pageOrigin returns where the limits in force come from.
func (v *server) pageOrigin() (o statuspage.Origin) {
	if config := v.watcher.now.Load(); config != nil {
		o = statuspage.Origin{Source: config.Origin.Source, Version: config.Origin.Version, Since: config.Origin.Since}
	}
	return o
}

// nearShare is the share of a limit from which on a request is near it.
const nearShare = 0.8

// Counted counts what became of a descriptor that has a limit.
func (p *livePage) Counted(m *limits.Match, s *headgate.State, o rls.Outcome) {
	r := p.row(m.Path)
	if p.page == nil || r == nil {
		return
	}
	switch o {
	case rls.OverLimit:
		r.denied.Add(1)
		if m.Key != "" { // that of a limit of 0 has none
			p.keys.Denied.Add(m.Key, uint64(s.RetryAfter)^uint64(s.ResetAfter)>>7)
		}
	case rls.Undecided:
		r.undecided.Add(1)
	default:
		r.passed.Add(1)
		if s.Known != backend.NotCounted && s.Limit > 0 && float64(s.Used) >= nearShare*float64(s.Limit) {
			p.keys.Near.Add(m.Key, uint64(s.ResetAfter))
		}
	}
}

// servePage adds the page to the mux of -http.
func (v *server) servePage(mux *http.ServeMux) {
	if v.livePage.page == nil {
		return
	}
	page := http.StripPrefix("/page", v.livePage.page)
	mux.HandleFunc("/page/", func(w http.ResponseWriter, r *http.Request) {
		// A page elsewhere whose name resolves to this machine could read it (DNS rebinding).
		//mutant:page-by-own-name
		if onThisMachine(v.settings.http) && !ownName(r.Host) {
			http.Error(w, "the page is for this machine: ask for it by localhost or an address", http.StatusForbidden)
			return
		}
		page.ServeHTTP(w, r)
	})
	mux.Handle("GET /{$}", http.RedirectHandler("page/", http.StatusFound))
}

// ownName reports whether a request names this machine by an address, or as localhost.
func ownName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil
}
