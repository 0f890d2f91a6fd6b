package policyfile

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/internal/lab/golden"
	"github.com/stretchr/testify/require"
)

// TestGolden: each field and word of the format, and what it means.
func TestGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/format.yaml")
	require.NoError(t, err)
	for _, words := range [][]string{
		sections, ruleFields, tenantFields, sorted(algorithms), sorted(modes), civilPeriods, sorted(serviceFields), {unlimited, blocked},
	} {
		for _, word := range words {
			require.Regexp(t, `\b`+word+`\b`, string(text), "testdata/format.yaml has each field and word")
		}
	}
	f := parse(t, string(text), &Options{OnFailure: headgate.FailOpen, First: true})
	var b strings.Builder
	b.WriteString("# What format.yaml means; in Go, the policies of each plan and tenant. The format has no version.\n")
	for _, name := range slices.Concat([]string{""}, f.Plans()) {
		l, _ := f.Plan(name)
		describe(&b, fmt.Sprintf("plan %q", name), l)
	}
	for _, name := range f.Tenants() {
		describe(&b, fmt.Sprintf("tenant %q", name), f.For(name))
	}
	for _, word := range slices.Sorted(maps.Keys(serviceAlgorithms)) {
		f := parse(t, "rate-limiter: {use-algo: "+word+", window-size: 60, max-requests: 5}", &Options{OnFailure: headgate.FailOpen})
		describe(&b, word, f.For(""))
	}
	golden.Equal(t, "format.golden", b.String())
}

func describe(b *strings.Builder, name string, l List) {
	fmt.Fprintf(b, "\n%s: shards %d, borrow %v, blocked %v\n", name, l.Shards, l.Borrow, l.Blocked)
	if l.First != nil {
		fmt.Fprintf(b, "\tfirst %q\n", l.First)
	}
	line := func(p headgate.Policy, more string) {
		fmt.Fprintf(b, "\t%s: %v, %v, shadow %v%s\n", p.Name, &p.Algorithm, p.OnFailure, p.Shadow, more)
	}
	for _, p := range l.Policies {
		line(p, "")
	}
	for _, s := range l.Scoped {
		line(s.Policy, fmt.Sprintf(", per %s, only %q, blocked %v", s.Per, s.Only, s.Blocked))
	}
}
