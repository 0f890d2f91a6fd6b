package main

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/internal/lab/golden"
	"github.com/stretchr/testify/require"
)

// TestGolden: the names and labels of the server's metrics, and the JSON of /rlconfig, are those of
// the golden files. Dashboards and scripts hold them.
func TestGolden(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits)
	sample := regexp.MustCompile(`^(headgated_\w+)(\{.*\})? `)
	kind := regexp.MustCompile(`^# TYPE (headgated_\w+) (\w+)$`)
	kinds, labels := map[string]string{}, map[string]map[string]bool{}
	for line := range strings.Lines(scrape(t, s)) {
		if m := kind.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			kinds[m[1]] = m[2]
		} else if m := sample.FindStringSubmatch(line); m != nil {
			if labels[m[1]] == nil {
				labels[m[1]] = map[string]bool{}
			}
			labels[m[1]][m[2]] = true
		}
	}
	var b strings.Builder
	b.WriteString("# The metrics of headgated itself: name, type, and each set of labels.\n")
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&b, "\n%s %s\n", name, kinds[name])
		for _, set := range slices.Sorted(maps.Keys(labels[name])) {
			if set != "" {
				fmt.Fprintf(&b, "\t%s\n", set)
			}
		}
	}
	golden.Equal(t, "metrics.golden", b.String())

	req, err := http.NewRequest(http.MethodGet, s.httpURL()+"/rlconfig", nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "application/json")
	resp, err := http.DefaultClient.Do(req)
	_, text := read(t, resp, err)
	own := strings.ReplaceAll(text, s.file, "FILE")
	for name, value := range map[string]string{"version": `"[0-9a-f]+"`, "since": `"[^"]+"`} {
		own = regexp.MustCompile(`("`+name+`": ?)`+value).ReplaceAllString(own, `$1"…"`)
	}
	golden.Equal(t, "rlconfig.golden", own)
}
