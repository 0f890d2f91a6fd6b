package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestLeaseIDsAreCut: whoever has the whole ID of a lease can settle it. keys shows what
// leases shows, as text and as JSON.
func TestLeaseIDsAreCut(t *testing.T) {
	for where, p := range places(t) {
		t.Run(where, func(t *testing.T) {
			for range 20 {
				_, d, err := p.limiter(t, "one").Reserve(t.Context(), headgate.Call{Key: "user:42"})
				require.NoError(t, err)
				require.True(t, d.Allowed)
			}
			at := func(args ...string) []string { return append(args, p.args...) }
			text, lines := exec(t, 0, at("keys")...), exec(t, 0, at("keys", "-json")...)
			unsettled := decode[leased](t, 0, at("leases", "user:42")...).Leases
			require.Len(t, unsettled, 20)
			for _, l := range unsettled {
				require.Contains(t, text, "user:42\theadgate:{user:42}:l:"+l.ID+"\n")
				require.Contains(t, lines, `{"key":"user:42","name":"headgate:{user:42}:l:`+l.ID+"\"}\n")
			}
			require.Equal(t, 21, strings.Count(text, "\n"), text)
			all := open(t, p.args).store
			for k, err := range all.Keys(t.Context(), "") {
				require.NoError(t, err)
				if id := k.Lease[:]; k.Lease != (backend.LeaseID{}) {
					require.NotContains(t, text+lines, string(id))
					require.NotContains(t, text+lines, base64.RawURLEncoding.EncodeToString(id))
				}
			}
		})
	}
}

// TestControlBytes: what a caller, another program or a server has put into a name, a
// value or a message reaches no terminal as a control character.
func TestControlBytes(t *testing.T) {
	const evil = "\x1b[2J\r\x00\x07\x7f\u009b31m\u202e\xff\x9b\U000e0001"
	path := write(t)
	for where, p := range places(t) {
		t.Run(where, func(t *testing.T) {
			for _, name := range []string{"headgate:{k}:log:" + evil, "headgate:{" + evil + "}", "headgate:{k}:l:" + evil[:15]} {
				require.NoError(t, p.admin.Set(t.Context(), name, evil, time.Hour).Err())
			}
			require.NoError(t, p.admin.HSet(t.Context(), "headgate:{k}", "f1d/"+evil, evil, "f1d/fixed", evil, "cd/"+evil+"/a", evil).Err())
			require.NoError(t, p.admin.Set(t.Context(), "headgate:{k}:l:"+strings.Repeat("\x1b", 16), evil, time.Hour).Err())
			take(t, p.limiter(t, "plain"), evil, 1, 1)
			of := []string{"-policies", path, "-plan", "one"}
			for _, args := range [][]string{
				{"keys"}, {"keys", evil}, {"peek", "k"}, {"peek", evil}, {"leases", "k"}, {"leases", evil}, {"ping"},
				append([]string{"peek", "k"}, of...), append([]string{"peek", evil}, of...), append([]string{"top", "-every", "0"}, of...),
				{"peek", "k", "-policies", evil}, {"peek", "k", "-policies", path, "-plan", evil}, {"peek", "k", "-policies", path, "-tenant", evil},
				{"peek", "k", "-cost", evil, "-policies", path}, {"-" + evil}, {evil}, {"keys", "-redis", evil}, {"keys", "-prefix", evil},
				append([]string{"reset", "k"}, of...), append([]string{"reset", evil}, of...), {"reset", "k"}, {"reset", evil},
			} {
				args = append(append([]string{}, args...), p.args...)
				for _, more := range [][]string{nil, {"-json"}} {
					var out, errs bytes.Buffer
					status := run(t.Context(), append(args, more...), &out, &errs)
					printed(t, out.String()+errs.String())
					if lines := json.NewDecoder(&out); more != nil && status == 0 {
						for lines.More() {
							require.NoError(t, lines.Decode(new(any)), "%q", args)
						}
					}
				}
			}
		})
	}
}

// printed holds that a text has nothing that a terminal would obey.
func printed(t *testing.T, text string) {
	t.Helper()
	require.True(t, utf8.ValidString(text), "%q", text)
	at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
	require.Negative(t, at, "%q", text)
}
