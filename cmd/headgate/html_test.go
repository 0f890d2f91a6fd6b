package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sample is where TestPage leaves a report for a browser.
var sample = flag.String("sample", "", "a file that TestPage writes a report to, for a browser")

// paged replays a log, and returns the page.
func paged(t *testing.T, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	_, notes := output(t, 0, append(append([]string{}, args...), "-html", path)...)
	require.Contains(t, notes, "the report is also in "+path)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".headgate-*"))
	require.NoError(t, err)
	require.Empty(t, left)
	return string(text)
}

// elements returns the elements of a page with their attributes but numbers, and its texts.
func elements(t *testing.T, page string) (all, texts []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	number := regexp.MustCompile(`^[0-9.]+$`)
	for {
		token, err := d.Token()
		if err == io.EOF {
			return all, texts
		}
		require.NoError(t, err)
		switch e := token.(type) {
		case xml.StartElement:
			text := e.Name.Local
			for _, a := range e.Attr {
				require.NotContains(t, []string{"style", "src", "href", "srcdoc", "action"}, a.Name.Local)
				require.False(t, strings.HasPrefix(a.Name.Local, "on"), a.Name.Local)
				if text += " " + a.Name.Local; !number.MatchString(a.Value) {
					text += "=" + a.Value
				}
			}
			all = append(all, text)
		case xml.CharData:
			texts = append(texts, string(e))
		}
	}
}

// TestPage: the page needs nothing from elsewhere, its policy allows its style only, and it has the
// figures of the report.
func TestPage(t *testing.T) {
	args := logged(t, perMinute, busy()+"Bearer secret of a wrong line\n")
	old := logged(t, strings.Replace(perMinute, "limit: 3", "limit: 5", 1), "")[2]
	page := paged(t, append(args, "-against", old)...)
	names, texts := elements(t, page)
	for _, no := range []string{"script", "link", "img", "iframe", "object", "form", "base"} {
		require.NotContains(t, names, no)
	}
	require.NotRegexp(t, `(?i)https?://|url\(|@import|javascript:`, page)
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(page)[1]
	sum := sha256.Sum256([]byte(style))
	require.Contains(t, names, "meta http-equiv=Content-Security-Policy content=default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'; base-uri 'none'; form-action 'none'")
	all := strings.Join(texts, " ")
	for _, text := range []string{"4000 calls of 40 keys", "Keys are shown as the log has them", "192.0.2.0", "limit: denied", "4000 calls; 1 lines could not be read", "Against the old file,"} {
		require.Contains(t, all, text)
	}
	require.NotContains(t, page, "secret", "a line that can't be read is not shown")
	if *sample != "" {
		require.NoError(t, os.WriteFile(*sample, []byte(page), 0o600))
	}

	page = paged(t, append(args, "-hash", "-json")...)
	require.NotContains(t, page, "192.0.2.")
	require.Contains(t, page, "Keys are hashed")
}

// TestPageOfHostileKeys: whatever keys are, the page has the elements that it has with plain ones,
// and no character that a browser obeys.
func TestPageOfHostileKeys(t *testing.T) {
	hostile := []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</bdi></table></main><h1>x`, "\x1b[2J\r\x00\x07\u202e\u2066", strings.Repeat("x", 4096), strings.Repeat("<", 4096),
		`{{.Calls}}`, `--></style><style>*{display:none}`, `&lt;b&gt;&#0;`, "\xff\xfe<\xc0",
	}
	log := func(keys []string) string {
		text := ""
		for _, key := range keys {
			of, err := json.Marshal(key)
			require.NoError(t, err)
			if strings.HasPrefix(key, "\xff") {
				of = []byte(`"` + key + `"`)
			}
			text += strings.Repeat(`{"ts":1700000000.5,"user":`+string(of)+"}\n", 5)
		}
		return text
	}
	var plain []string
	for i := range hostile {
		plain = append(plain, "key"+string(rune('a'+i)))
	}
	want, _ := elements(t, paged(t, append(logged(t, perMinute, log(plain)), "-key", "user")...))
	page := paged(t, append(logged(t, perMinute, log(hostile)), "-key", "user")...)
	got, texts := elements(t, page)
	require.Equal(t, want, got)
	require.Less(t, len(page), 40_000)
	printed(t, page)
	all := strings.Join(texts, "")
	require.Contains(t, all, `<script>alert(1)</script>`, "as a text")
	require.Contains(t, all, "(4096 bytes)")
}

// TestPageReplacesNoInput: -html never replaces what the replay reads, and a replay that fails leaves
// what was there.
func TestPageReplacesNoInput(t *testing.T) {
	args := logged(t, perMinute, combined)
	link := filepath.Join(t.TempDir(), "link.html")
	require.NoError(t, os.Symlink(args[4], link))
	for _, file := range []string{args[4], args[2], link} {
		before, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, exec(t, 2, append(args, "-html", file)...), "the replay reads this file")
		after, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
	dir := t.TempDir()
	require.Contains(t, exec(t, 2, append(args, "-html", dir)...), "want a regular file")
	require.Contains(t, exec(t, 2, append(args, "-html", filepath.Join(dir, "none", "x.html"))...), "-html: ")
	file := filepath.Join(dir, "report.html")
	require.NoError(t, os.WriteFile(file, []byte("before"), 0o600))
	exec(t, 1, append(logged(t, perMinute, ""), "-html", file)...)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, bytes.Equal([]byte("before"), text))
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, list, 1)
}
