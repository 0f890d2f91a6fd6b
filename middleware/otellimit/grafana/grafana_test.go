// Package grafana holds a dashboard and alert rules, and the test that what they
// name exists.
package grafana

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/middleware/otellimit"
	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.yaml.in/yaml/v3"
)

// series are the values of each label of each metric that Prometheus scrapes.
type series map[string]map[string][]string

func (s series) add(name, label, value string) {
	if s[name] == nil {
		s[name] = map[string][]string{}
	}
	s[name][label] = append(s[name][label], value)
}

// scraped makes an event of every kind, and returns what the Prometheus exporter
// makes of it.
func scraped(t *testing.T) series {
	registry := prom.NewRegistry()
	exporter, err := prometheus.New(prometheus.WithRegisterer(registry), prometheus.WithoutScopeInfo())
	require.NoError(t, err)
	m, err := otellimit.New(sdk.NewMeterProvider(sdk.WithReader(exporter)), nil)
	require.NoError(t, err)
	for _, e := range events() {
		m.Observe(e)
	}
	m.Reloaded(nil)
	m.Reloaded(errors.New("line 3"))
	families, err := registry.Gather()
	require.NoError(t, err)
	all := series{}
	for _, f := range families {
		names := []string{f.GetName()}
		if f.GetMetric()[0].GetHistogram() != nil {
			names = []string{f.GetName() + "_bucket", f.GetName() + "_sum", f.GetName() + "_count"}
			all.add(names[0], "le", "")
		}
		for _, name := range names {
			all.add(name, "job", "") // Prometheus adds it
			for _, metric := range f.GetMetric() {
				for _, l := range metric.GetLabel() {
					all.add(name, l.GetName(), l.GetValue())
				}
			}
		}
	}
	return all
}

func events() []headgate.Event {
	policies := []headgate.Policy{{Name: "api", Algorithm: algo.SlidingLog(algo.PerMinute(5))}}
	event := func(op backend.Op, d headgate.Decision, err error) headgate.Event {
		d.Policy = "api"
		return headgate.Event{
			Type: headgate.EventDecision, Op: op, Policies: policies, Decision: d, Err: err,
			Duration: time.Millisecond, StoreTime: time.Millisecond,
		}
	}
	all := []headgate.Event{
		event(backend.Peek, headgate.Decision{Allowed: true}, nil),
		event(backend.Reset, headgate.Decision{}, nil),
		{Type: headgate.EventBatch, Batch: backend.Batch{Node: "a", Calls: 3, Keys: 2}, Duration: time.Millisecond},
	}
	for source := headgate.FromStore; source <= headgate.FromDenyCache; source++ {
		for _, op := range []backend.Op{backend.Take, backend.Reserve, backend.AtMost} {
			all = append(all, event(op, headgate.Decision{Source: source}, nil))
		}
	}
	shadowed := event(backend.Take, headgate.Decision{Allowed: true}, nil)
	shadowed.Shadow = &headgate.Decision{State: headgate.State{Policy: "tighter"}}
	all = append(all, shadowed)
	for _, err := range []error{
		headgate.ErrPerhapsCounted, headgate.ErrUnavailable, headgate.ErrNeverAdmissible, &headgate.CorruptError{},
	} {
		all = append(all, event(backend.Take, headgate.Decision{}, err))
	}
	for _, to := range []string{"open", "half_open", "closed", backend.Gone} {
		all = append(all, headgate.Event{Type: headgate.EventCircuit, Circuit: backend.Change{Node: "a", To: to}})
	}
	return all
}

// TestDashboard: every query of the dashboard parses, and what it selects exists.
func TestDashboard(t *testing.T) {
	data, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	require.NoError(t, json.Unmarshal(data, &dashboard))
	require.NotEmpty(t, dashboard.Panels)
	exists := scraped(t)
	shown := map[string]bool{}
	for _, p := range dashboard.Panels {
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			check(t, exists, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"), shown)
		}
	}
	for name := range exists {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if strings.HasPrefix(name, "headgate_") && !shown[base+"_bucket"] && !shown[base+"_sum"] {
			require.True(t, shown[name], "no panel shows %s", name)
		}
	}
}

// TestShadowsAreNoDenials: an alert, or a panel about anything but shadows, selects
// nothing that a shadow policy decided.
func TestShadowsAreNoDenials(t *testing.T) {
	for _, file := range []string{"dashboard.json", "alerts.yml"} {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		want := strings.Count(string(data), "Denied by shadow policies") * 2 // a share of two
		require.Equal(t, want, strings.Count(string(data), "headgate_shadow_"), file)
	}
	for _, values := range scraped(t)["headgate_decisions_total"] {
		require.NotContains(t, values, "tighter")
	}
}

type rule struct {
	Alert, Expr, For string
	Annotations      map[string]string
}

// rules returns the alert rules of a file. Each has a description.
func rules(t *testing.T, path string) []rule {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var file struct{ Groups []struct{ Rules []rule } }
	require.NoError(t, yaml.Unmarshal(data, &file))
	require.NotEmpty(t, file.Groups[0].Rules)
	for _, r := range file.Groups[0].Rules {
		require.NotEmpty(t, r.Alert)
		require.NotEmpty(t, r.Annotations["description"], r.Alert)
		_, err := time.ParseDuration(r.For)
		require.NoError(t, err, r.Alert)
	}
	return file.Groups[0].Rules
}

// TestAlerts: the same of the alert rules.
func TestAlerts(t *testing.T) {
	exists := scraped(t)
	for _, r := range rules(t, "alerts.yml") {
		check(t, exists, r.Expr, map[string]bool{})
	}
}

// TestServerAlerts: the rules of headgated parse. Its own tests hold that their metrics exist.
func TestServerAlerts(t *testing.T) {
	for _, r := range rules(t, "../../../deploy/alerts.yml") {
		_, err := parser.ParseExpr(r.Expr)
		require.NoError(t, err, r.Alert)
	}
}

// check parses a query and holds each selector against what exists: the metric,
// the labels, and that each matcher selects a value.
func check(t *testing.T, exists series, query string, selected map[string]bool) {
	t.Helper()
	expr, err := parser.ParseExpr(query)
	require.NoError(t, err, query)
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			selected[node.Name] = true
			require.Contains(t, exists, node.Name, query)
			for _, m := range node.LabelMatchers {
				matches(t, exists[node.Name], m, query)
			}
		case *parser.AggregateExpr:
			for _, label := range node.Grouping {
				require.True(t, exists.has(label), "no metric has the label %s: %s", label, query)
			}
		}
		return nil
	})
}

func (s series) has(label string) bool {
	for _, values := range s {
		if values[label] != nil {
			return true
		}
	}
	return false
}

// matches requires that m selects some value that its label has. The variable
// $job stands for any.
func matches(t *testing.T, values map[string][]string, m *labels.Matcher, query string) {
	t.Helper()
	if m.Name == labels.MetricName || m.Name == "job" {
		return
	}
	require.Contains(t, values, m.Name, query)
	for _, v := range values[m.Name] {
		if m.Matches(v) {
			return
		}
	}
	t.Errorf("%v selects none of %q: %s", m, values[m.Name], query)
}
