package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A guard, which is a line with a mutant, stands for a feature if its package is that
// feature's, or if the feature's word stands in the line, in the mutant's name or in the
// comment above. One that stands for two features or more couples them.

// featureOf is the feature of a package or file.
var featureOf = map[string]string{
	"shard/": "spread", "internal/borrow/": "borrow", "internal/denial/": "deny cache", "internal/wait/": "wait", "breaker/": "failure modes",
	"internal/settlement/": "lease", "internal/event/": "event", "backend/memory/loan.go": "borrow", "backend/memory/settle.go": "lease",
	"backend/memory/leases.go": "lease", "lua/leases.lua": "lease", "lua/onelease.lua": "lease", "lua/lent.lua": "borrow",
	"lua/borrow.lua": "borrow", "algo/rule/lent.go": "borrow", "all.go": "all", "reserve.go": "all",
	"wait.go": "wait", "waitall.go": "wait", "reservation.go": "lease", "token.go": "lease", "hold.go": "lease",
	"internal/joint/": "all", "internal/layer/keys.go": "all", "breaker/failkeys.go": "all",
	"backend/memory/manykeys.go": "all", "lua/manykeys.lua": "all",
}

// words are those of each feature.
var words = map[string]*regexp.Regexp{
	"spread":        regexp.MustCompile(`spread|[Ss]hard|\bSub\b|sub-key|share`),
	"borrow":        regexp.MustCompile(`[Bb]orrow|[Ll]ent\b|[Ll]oan|lends?\b|FromLoan|recall`),
	"shadow":        regexp.MustCompile(`[Ss]hadow|spared|[Ss]pares`),
	"lease":         regexp.MustCompile(`Reserve\b|Settle|Extend|\bLease\b|settle|[Rr]eservation|Unresolved|Leased\(\)|slots?\b|INFLIGHT`),
	"at most":       regexp.MustCompile(`AtMost|UpTo|upTo|at-most|granted`),
	"record":        regexp.MustCompile(`\bRecord|RECORD|Records\(\)`),
	"reset":         regexp.MustCompile(`\bReset\b|RESET|-reset|reset-`),
	"lost":          regexp.MustCompile(`[Ll]ost|[Pp]erhaps`),
	"failure modes": regexp.MustCompile(`Fail(Open|Closed|Local)|FromFail|failure mode|local-|Undecided|\.Fail\b`),
	"deny cache":    regexp.MustCompile(`[Dd]enial|DenyCache|denied-from-cache|Known\(`),
	"all":           regexp.MustCompile(`\bAll\b|\.And\b|keys? of a call|several keys|joint|\ball-|-all-|-all\b`),
	"wait":          regexp.MustCompile(`\bWait|waiter|waits\b`),
	"event":         regexp.MustCompile(`\bNear\b|[Oo]bserver|StoreTime|near-`),
}

var (
	// notCore are the folders that no guard is counted of: what has a network or is no
	// part of a decision.
	notCore = regexp.MustCompile(`_test\.go$|^(cmd|middleware|bench|examples|policyfile|compat|internal/(lab|oracle|trace)|backend/(storetest|internal/client|internal/inspect|cluster|standalone))/`)
	guard   = regexp.MustCompile(`mutant:([\w-]+)`)
	core    = regexp.MustCompile(`^(algo|lua|backend|breaker|shard|borrow|internal)/`)
	outside = regexp.MustCompile(`^(backend/storetest|internal/(lab|oracle|trace|arch))/`)
	comment = regexp.MustCompile(`^\s*(//|--)`)
	asksOp  = regexp.MustCompile(`\b(Op|op|asks)\b ?(==|!=) ?(backend\.)?[A-Z]|case (backend\.)?(Take|Peek|AtMost|Settle|Reset|Reserve|Extend|Record|RecordAtMost|Borrow)\b|switch .*\bOp\b`)
	notOps  = regexp.MustCompile(`_test\.go$|^(cmd|bench|examples|internal/(lab|oracle|trace))/|storetest`)
)

// coreLines counts the lines of code of the core below the root, Lua's too.
func coreLines(t *testing.T, all []source) (n int) {
	t.Helper()
	seen := map[string]bool{}
	for _, s := range all {
		if core.MatchString(s.pkg+"/") && !outside.MatchString(s.pkg+"/") && !seen[s.pkg] {
			seen[s.pkg] = true
			n += codeLines(t, all, s.pkg)
		}
	}
	files, err := filepath.Glob(filepath.Join(root, "lua", "*.lua"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
				n++
			}
		}
	}
	return n
}

// coupled returns how many guards of the core stand for two features or more, and how many
// lines of production code test a request's operation outside of the table of verbs.
func coupled(t *testing.T) (guards, operations int) {
	t.Helper()
	out, err := exec.Command("git", "-C", root, "ls-files", "*.go", "*.lua").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(out)) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			if !notOps.MatchString(name) && strings.HasSuffix(name, ".go") && asksOp.MatchString(line) {
				operations++
			}
			if !notCore.MatchString(name) && guard.MatchString(line) && len(features(name, lines, i)) > 1 {
				guards++
			}
		}
	}
	return guards, operations
}

// features returns those that the guard with its marker in the i-th line stands for.
func features(name string, lines []string, i int) map[string]bool {
	text := guard.FindStringSubmatch(lines[i])[1]
	if i+1 < len(lines) {
		text += " " + lines[i+1]
	}
	for j := i - 1; j >= 0 && comment.MatchString(lines[j]); j-- {
		text += " " + lines[j]
	}
	all := map[string]bool{}
	for feature, word := range words {
		if word.MatchString(text) {
			all[feature] = true
		}
	}
	for at, feature := range featureOf {
		if name == at || strings.HasSuffix(at, "/") && strings.HasPrefix(name, at) {
			all[feature] = true
		}
	}
	return all
}
