package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/cmd/headgated/internal/limits"
	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// documents returns the documents of a file of deploy.
func documents(t testing.TB, file string) (all []map[string]any) {
	t.Helper()
	f, err := os.Open(filepath.Join("../../deploy", file))
	require.NoError(t, err)
	defer f.Close()
	for d := yaml.NewDecoder(f); ; {
		var doc map[string]any
		err := d.Decode(&doc)
		if err == io.EOF {
			return all
		}
		require.NoError(t, err, file)
		all = append(all, doc)
	}
}

// at follows a path of keys; a list stands for its first element.
func at(v any, path ...string) any {
	for _, key := range path {
		if list, ok := v.([]any); ok {
			v = list[0]
		}
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

func text(v any) (all []string) {
	list, _ := v.([]any)
	for _, e := range list {
		all = append(all, e.(string))
	}
	return all
}

// The flags and the limits of the examples are ones that the server takes.
func TestDeploy(t *testing.T) {
	t.Parallel()
	kubernetes := documents(t, "kubernetes.yaml")
	config := at(kubernetes[0], "data", "limits.yaml").(string)
	compose := documents(t, "docker-compose.yml")
	for _, args := range [][]string{
		text(at(document(kubernetes, "Deployment"), "spec", "template", "spec", "containers", "args")),
		text(at(compose[0], "services", "headgated", "command")),
	} {
		require.NotEmpty(t, args)
		_, _, err := settingsOf(append([]string{"headgated"}, args...), nil, io.Discard)
		require.NoError(t, err)
	}
	files, _, err := limits.Read("../../deploy/limits.yaml")
	require.NoError(t, err)
	for _, f := range append(files, limits.File{Name: "kubernetes.yaml", Data: []byte(config)}) {
		c, err := limits.Parse([]limits.File{f}, limits.Options{New: func(headgate.Policy, time.Duration) (*headgate.Limiter, error) { return nil, nil }})
		require.NoError(t, err)
		require.True(t, c.Has("shop"), f.Name)
		require.Empty(t, c.Warnings)
	}
	for _, file := range []string{"istio-envoyfilter.yaml", "envoy-gateway.yaml"} {
		require.NotEmpty(t, documents(t, file))
	}
}

// document returns the document of a kind.
func document(all []map[string]any, kind string) map[string]any {
	i := slices.IndexFunc(all, func(d map[string]any) bool { return d["kind"] == kind })
	return all[i]
}

// TestKubernetes: the manifest spreads the servers, admits those who may ask, and has no
// credential beside the Secret.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	all := documents(t, "kubernetes.yaml")
	pod := at(document(all, "Deployment"), "spec", "template", "spec")
	require.Equal(t, false, at(pod, "automountServiceAccountToken"))
	require.Equal(t, "kubernetes.io/hostname", at(pod, "topologySpreadConstraints", "topologyKey"))
	container := at(pod, "containers").([]any)[0]
	env := at(container, "env").([]any)
	names := []any{}
	for _, e := range env {
		names = append(names, at(e, "name"))
	}
	require.NotContains(t, names, "GOMEMLIMIT")
	require.Equal(t, at(document(all, "Secret"), "metadata", "name"), at(env[len(env)-1], "valueFrom", "secretKeyRef", "name"))
	policy := at(document(all, "NetworkPolicy"), "spec")
	require.Equal(t, at(document(all, "Deployment"), "spec", "selector"), at(policy, "podSelector"))
	ports := map[any]bool{}
	for _, p := range at(container, "ports").([]any) {
		ports[at(p, "name")] = true
	}
	for _, rule := range at(policy, "ingress").([]any) {
		require.NotEmpty(t, at(rule, "from"))
		for _, p := range at(rule, "ports").([]any) {
			require.Contains(t, ports, at(p, "port"))
		}
	}
}

// TestDockerContext: the image's context is what it is built of. Nothing that a build leaves is
// in it.
func TestDockerContext(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../.dockerignore")
	require.NoError(t, err)
	in := func(name string) (in bool) { // the last pattern that matches counts
		in = true
		for _, line := range strings.Split(string(text), "\n") {
			pattern, taken := strings.CutPrefix(line, "!")
			pattern = strings.TrimPrefix(pattern, "**/")
			if matched, _ := filepath.Match(pattern, filepath.Base(name)); line != "" && line[0] != '#' && (pattern == "**" || matched) {
				in = taken
			}
		}
		return in
	}
	for name, want := range map[string]bool{
		"go.mod": true, "cmd/headgated/main.go": true, "cmd/headgated/go.sum": true, "lua/decide.lua": true,
		"headgated": false, "cmd/headgated/headgated": false, "headgate.test": false, ".git/HEAD": false, "dump.rdb": false, "cmd/headgated/main_test.go": false,
	} {
		require.Equal(t, want, in(name), name)
	}
	out, err := exec.Command("git", "-C", "../..", "ls-files", "*.go", "*.lua").Output()
	require.NoError(t, err)
	require.NotEmpty(t, out)
	for _, name := range strings.Fields(string(out)) {
		if source, err := os.ReadFile(filepath.Join("../..", name)); err == nil && !strings.Contains(name, "_test.go") && !strings.HasPrefix(name, "bench/") && !strings.HasPrefix(name, "examples/") {
			for _, embedded := range regexp.MustCompile(`(?m)^//go:embed (.*)$`).FindAllStringSubmatch(string(source), -1) {
				require.True(t, in(embedded[1]), "%s embeds %s", name, embedded[1])
			}
		}
	}
}

// Envoy takes the example as it is.
func TestEnvoyExample(t *testing.T) {
	out, err := exec.Command(envoyBinary(t), "--mode", "validate", "-c", "../../deploy/envoy.yaml").CombinedOutput()
	require.NoError(t, err, "%s", out)
}

type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
}

func readDashboard(t testing.TB, file string) (d dashboard) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &d))
	return d
}

// The dashboard has the panels of the library's, and each metric of the server that it
// names exists.
func TestDashboard(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits)
	for range 3 {
		_, err := s.client(t).ShouldRateLimit(context.Background(), userRequest("x"))
		require.NoError(t, err)
	}
	s.metrics.command("PING", nil)
	metrics, shown := scrape(t, s), map[string]bool{}
	ours := readDashboard(t, "../../deploy/dashboard.json")
	for _, p := range ours.Panels {
		for _, target := range p.Targets {
			for _, name := range regexp.MustCompile(`headgated_\w+`).FindAllString(target.Expr, -1) {
				require.Contains(t, metrics, name, p.Title)
				shown[name] = true
			}
		}
	}
	for _, line := range strings.Split(metrics, "\n") {
		if name := regexp.MustCompile(`^headgated_\w+`).FindString(line); name != "" {
			require.True(t, shown[name], "no panel shows %s", name)
		}
	}
	library := readDashboard(t, "../../middleware/otellimit/grafana/dashboard.json")
	library.Panels = library.Panels[:len(library.Panels)-1] // of a policy file, which the server counts itself
	require.Equal(t, library.Panels, ours.Panels[len(ours.Panels)-len(library.Panels):])
}

// Each metric that an alert rule names exists, and so does each value that it selects.
func TestAlerts(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits, "-redis", redistest.Start(t).Addr(), "-budget", "10s")
	_, err := s.client(t).ShouldRateLimit(context.Background(), userRequest("x"))
	require.NoError(t, err)
	metrics := scrape(t, s)
	groups := at(documents(t, "alerts.yml")[0], "groups").([]any)
	for _, r := range at(groups[0], "rules").([]any) {
		expr := at(r, "expr").(string)
		names := regexp.MustCompile(`\bheadgated?_\w+`).FindAllString(expr, -1)
		require.NotEmpty(t, names, expr)
		for _, name := range append(names, regexp.MustCompile(`\w+="\w+"`).FindAllString(expr, -1)...) {
			require.Contains(t, metrics, name, expr)
		}
	}
}

// However many values there are, a thousand series of them at most, and the files' paths
// keep theirs.
func TestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	m, err := newMetrics(slog.Default())
	require.NoError(t, err)
	m.descriptors.reserve([]limits.Label{{Path: "d.honest"}, {Path: "d.user", Valued: true}})
	for i := range 5000 {
		m.Descriptor("d.user", fmt.Sprint("d.user_", i), rls.OK)
		m.Descriptor("d.user", "d.user_0", rls.OverLimit)
	}
	m.descriptors.reserve([]limits.Label{{Path: "d.honest"}, {Path: "d.user", Valued: true}, {Path: "d.later"}}) // by files that change
	m.Descriptor("d.later", "d.later", rls.OK)
	families, err := m.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "headgated_descriptor_decisions_total" {
			require.LessOrEqual(t, len(f.GetMetric()), 1009)
			require.Greater(t, len(f.GetMetric()), 900)
			require.Contains(t, f.String(), "d.honest")
			require.Contains(t, f.String(), "d.later")
			return
		}
	}
	t.Error("no series")
}
