package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
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
		l.OnFailure = strings.TrimPrefix(r.Policy.OnFailure.String(), "fail-")
	}
	return l
}

// rlconfig shows the limits in force, where they come from, and since when: so that a rollout
// can wait until every server has a version. Text, or JSON if the request accepts that.
func (v *server) rlconfig(w http.ResponseWriter, r *http.Request) {
	config := v.watcher.now.Load()
	if config == nil {
		http.Error(w, "no limits are loaded", http.StatusServiceUnavailable)
		return
	}
	all := []limitInForce{}
	for _, rule := range config.Rules() {
		all = append(all, limitOf(rule))
	}
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(struct {
			limits.Origin
			Limits []limitInForce `json:"limits"`
		}{config.Origin, all})
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	o := config.Origin
	fmt.Fprintf(w, "# %s, version %s, since %s, digest %s\n", o.Source, o.Version, o.Since.Format(time.RFC3339), o.Digest)
	for _, l := range all {
		if l.civil != "" {
			l.Algorithm += " (" + l.civil + ")"
		}
		fmt.Fprintf(w, "%s: unit=%s requests_per_unit=%d, unlimited: %t, shadow_mode: %t, quota_mode: %t, algorithm: %s, on_failure: %s # %s:%d\n",
			l.Descriptor, l.Unit, l.RequestsPerUnit, l.Unlimited, l.Shadow, l.Quota, l.Algorithm, l.OnFailure, l.File, l.Line)
	}
}
