package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/cmd/headgate/internal/advise"
	"github.com/headgate-go/headgate/cmd/headgate/internal/replay"
	"github.com/headgate-go/headgate/policyfile"
	"github.com/stretchr/testify/require"
)

// busy is a Combined log of 4,000 calls in some 70 minutes, by 40 clients.
func busy() string {
	var log strings.Builder
	r, at := rand.New(rand.NewPCG(1, 67)), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for range 4000 {
		at = at.Add(time.Duration(r.ExpFloat64() * float64(time.Second)))
		line := strings.Replace(combined, "01/Mar/2026:12:00:05 +0000", at.Format("02/Jan/2006:15:04:05 -0700"), 1)
		log.WriteString(strings.Replace(line, "192.0.2.7", fmt.Sprint("192.0.2.", r.IntN(1+r.IntN(40))), 1))
	}
	return log.String()
}

// TestAdvise: what is printed is a policy file, and a replay by it denies what is printed.
func TestAdvise(t *testing.T) {
	args := logged(t, perMinute, busy())
	log, file := args[4], filepath.Join(t.TempDir(), "limits.yaml")
	for _, more := range [][]string{{"-deny", "2%"}, {"-keys", "3"}, {"-per", "10s,90m", "-deny", "0%"}, nil} {
		out, notes := output(t, 0, append([]string{"advise", "-log", log}, more...)...)
		require.Contains(t, notes, "read as Combined")
		require.NoError(t, os.WriteFile(file, []byte(out), 0o600))
		f, err := policyfile.Load(file, nil)
		require.NoError(t, err, out)
		require.Len(t, f.For("").Policies, 8)

		report := decode[advise.Report](t, 0, append([]string{"advise", "-log", log, "-json"}, more...)...)
		replayed := decode[replay.Report](t, 0, "replay", "-policies", file, "-log", log)
		require.Equal(t, report.Calls, replayed.Calls)
		require.Equal(t, report.Keys, replayed.Keys)
		for i, p := range replayed.New.Policies {
			v := report.Advice[i]
			require.Equal(t, []any{v.Policy, v.Denied, v.Keys}, []any{p.Policy, p.Denied, p.DeniedKeys})
			require.Contains(t, out, fmt.Sprintf("# denies %d of 4000 calls (%s), by %d keys\n", v.Denied, percent(v.Denied, report.Calls), v.Keys))
		}
		require.Equal(t, strings.Contains(out, "shorter than the period"), more != nil && more[0] == "-per", out)
	}
}

// TestAdviseMargin: beside each policy are the limits that deny the same keys, as a replay by the
// largest of them shows, and one by the next.
func TestAdviseMargin(t *testing.T) {
	log := logged(t, perMinute, busy())[4]
	for _, flags := range [][]string{{"-keys", "3"}, {"-keys", "1"}, {"-deny", "3%"}} {
		args := append([]string{"advise", "-log", log, "-per", "1m"}, flags...)
		out, _ := output(t, 0, args...)
		report := decode[advise.Report](t, 0, args...)
		file := filepath.Join(t.TempDir(), "limits.yaml")
		deniedBy := func(more int64) (keys []int64) {
			text := "policies:\n"
			for _, v := range report.Advice {
				limit, burst := max(1, v.Same+more), ""
				if v.Burst > 0 {
					limit, burst = v.Limit, fmt.Sprint(", burst: ", limit)
				}
				text += fmt.Sprintf("  %s: {algorithm: %s, limit: %d, period: 1m%s, on-failure: open}\n", v.Policy, v.Algorithm, limit, burst)
			}
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			for _, p := range decode[replay.Report](t, 0, "replay", "-policies", file, "-log", log).New.Policies {
				keys = append(keys, p.DeniedKeys)
			}
			return keys
		}
		same, fewer := deniedBy(0), deniedBy(1)
		for i, v := range report.Advice {
			if v.Keys == 0 { // the two first keys have one peak
				continue
			}
			require.Equal(t, v.Keys, same[i], "%+v", v)
			require.Less(t, fewer[i], v.Keys, "%+v", v)
			what, from := "limit", v.Limit
			if v.Burst > 0 {
				what, from = "burst", v.Burst
			}
			margin := fmt.Sprintf("  # with a %s from %d to %d the same %d keys are denied\n", what, from, v.Same, v.Keys)
			switch {
			case v.Same == from:
				margin = fmt.Sprintf("  # with a %s of %d fewer keys are denied\n", what, from+1)
			case v.Keys == 1:
				margin = fmt.Sprintf("  # with a %s from %d to %d the same key is denied\n", what, from, v.Same)
			}
			require.Contains(t, out, margin)
		}
	}
	out, _ := output(t, 0, "advise", "-deny", "0", log)
	require.NotContains(t, out, "  # with a")
	require.Contains(t, out, "Each limit is the strictest that denies no more than 0 % of the calls")
}

// TestAdviseOfCosts: costs of the log are scanned, which the file has as a comment. A limit that no
// algorithm may have is left out.
func TestAdviseOfCosts(t *testing.T) {
	log := "time,who,used\n"
	for i := range 50 {
		log += fmt.Sprintf("%d,a,%d\n", 1700000000+i, 1<<34)
	}
	file := logged(t, perMinute, log)[4]
	out, _ := output(t, 0, "advise", "-key", "who", "-cost", "used", "-per", "1m", "-deny", "0%", file)
	require.Contains(t, out, "limits were tried from the greatest on, in steps")
	require.Regexp(t, `(?m)^  fixed-window-1m: \{algorithm: fixed-window, limit: \d+, period: 1m, on-failure: open\}$`, out)
	for _, name := range []string{"sliding-window", "sliding-log", "token-bucket"} {
		require.Regexp(t, "(?m)^  # "+name+"-1m: no limit, since ", out)
		require.NotContains(t, out, "algorithm: "+name)
	}
	_, err := policyfile.Parse("limits.yaml", []byte(out), nil)
	require.NoError(t, err)
}

// TestAdviseRefuses: flags that are wrong, and logs of which nothing can be advised.
func TestAdviseRefuses(t *testing.T) {
	file := logged(t, perMinute, combined)[4]
	for _, row := range []struct{ flags, says string }{
		{"-deny 1", "want percent"}, {"-deny -1%", "want percent"}, {"-deny 100%", "want percent"}, {"-deny NaN%", "want percent"}, {"-deny x%", "want percent"},
		{"-deny 1% -keys 1", "want one of them"}, {"-keys -2", "want a number of at least 0"}, {"-per 1", "want periods"}, {"-per 1m,", "want periods"},
		{"-per -1m", "-per:"}, {"-per 9600h", ""}, {"-per 1ns", "-per:"}, {"-cost 0", "want units"}, {"-cost -1", "want units"}, {"-cost a=1", "want units"},
		{"-within x", "want second or start"}, {"-zone x", "-zone"}, {"-key {", "-key"},
	} {
		args := append([]string{"advise", "-log", file}, strings.Fields(row.flags)...)
		if row.flags == "-per 9600h" {
			out, _ := output(t, 0, args...)
			require.Contains(t, out, "period: 9600h,")
			continue
		}
		require.Contains(t, exec(t, 2, args...), row.says, row.flags)
	}
	require.Contains(t, exec(t, 1, "advise", logged(t, perMinute, "")[4]), "the log is empty")
	require.Contains(t, exec(t, 1, "advise", "-key", "extra1", file), "no line of the log is a call with a key")
	out, _ := output(t, 0, "help", "advise")
	require.Regexp(t, `(?s)headgate advise -per 1m,1h -deny 0.1%.*-deny percent.*-keys number.*-per value`, out)
}
