package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headgate-go/headgate/cmd/headgated/internal/limits"
)

// originOf returns where a reading comes from. The version of files is their digest. Two
// discovery services may give one version to different limits, as those do that count from 1
// after a restart; the digest tells them apart.
func originOf(r reading) limits.Origin {
	o := limits.Origin{Source: "files", Since: time.Now().UTC(), Files: []string{}}
	digest := sha256.New()
	for _, f := range r.files {
		o.Files = append(o.Files, f.Name)
		sum := sha256.Sum256(f.Data)
		digest.Write(sum[:])
	}
	o.Digest = hex.EncodeToString(digest.Sum(nil)[:8])
	o.Version = o.Digest
	if r.source != "" {
		o.Source, o.Version = r.source, r.version
	}
	return o
}

// limitInForce is a limit as /rlconfig shows it.
type limitInForce struct {
	Descriptor      string   `json:"descriptor"`
	Unlimited       bool     `json:"unlimited,omitempty"`
	RequestsPerUnit int64    `json:"requests_per_unit"`
	Unit            string   `json:"unit"`
	Period          string   `json:"period"`
	Algorithm       string   `json:"algorithm"`
	OnFailure       string   `json:"on_failure"`
	Shadow          bool     `json:"shadow_mode"`
	Quota           bool     `json:"quota_mode"`
	Name            string   `json:"name,omitempty"`
	Replaces        []string `json:"replaces,omitempty"`
	File            string   `json:"file"`
	Line            int      `json:"line"`
	civil           string
}

func limitOf(r *limits.Rule) limitInForce {
	l := limitInForce{Descriptor: r.Label, Unlimited: r.Unlimited, RequestsPerUnit: r.Max(), Unit: r.Limit.GetUnit().String(),
		Period: cmp.Or(r.Civil, r.Period.String()), OnFailure: "unavailable", Shadow: r.Shadow, Quota: r.Quota, Name: r.Limit.GetName(),
		Algorithm: r.Algorithm, civil: r.Civil, Replaces: r.Replaces, File: r.File, Line: r.Line}
	if r.FailureMode {
		l.OnFailure = strings.TrimPrefix(r.Policy.OnFailure.String(), "fail_")
	}
	return l
}

// views are what /rlconfig shows of limits. Each is made once: of many limits that takes megabytes
// and a part of a second, for anybody who asks.
type views struct{ text, json func() []byte }

func viewsOf(config *limits.Config) *views {
	//mutant:view-made-once
	once := sync.OnceValue[[]byte]
	return &views{
		text: once(func() []byte { return textOf(config) }),
		json: once(func() []byte { return jsonOf(config) }),
	}
}

// rlconfig shows the limits in force, where they come from, and since when: so that a rollout
// can wait until every server has a version. Text, or JSON if the request accepts that.
func (v *server) rlconfig(w http.ResponseWriter, r *http.Request) {
	shown := v.watcher.views.Load()
	if shown == nil {
		http.Error(w, "no limits are loaded", http.StatusServiceUnavailable)
		return
	}
	kind, view := "text/plain; charset=utf-8", shown.text
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		kind, view = "application/json", shown.json
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(view())
}

func limitsInForce(config *limits.Config) []limitInForce {
	all := []limitInForce{}
	for _, rule := range config.Rules() {
		all = append(all, limitOf(rule))
	}
	return all
}

func jsonOf(config *limits.Config) []byte {
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(struct {
		limits.Origin
		Limits []limitInForce `json:"limits"`
	}{config.Origin, limitsInForce(config)})
	return b.Bytes()
}

func textOf(config *limits.Config) []byte {
	var b bytes.Buffer
	o := config.Origin
	fmt.Fprintf(&b, "# %s, version %s, since %s, digest %s\n", o.Source, o.Version, o.Since.Format(time.RFC3339), o.Digest)
	for _, l := range limitsInForce(config) {
		if l.civil != "" {
			l.Algorithm += " (" + l.civil + ")"
		}
		fmt.Fprintf(&b, "%s: unit=%s requests_per_unit=%d, unlimited: %t, shadow_mode: %t, quota_mode: %t, algorithm: %s, on_failure: %s # %s:%d\n",
			l.Descriptor, l.Unit, l.RequestsPerUnit, l.Unlimited, l.Shadow, l.Quota, l.Algorithm, l.OnFailure, l.File, l.Line)
	}
	return b.Bytes()
}
