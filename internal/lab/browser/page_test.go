// Package browser_test loads the live page and the report of headgate replay in Chromium: what only
// a browser shows. Without Chromium its tests are skipped.
package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/middleware/statuspage"
	"github.com/stretchr/testify/require"
)

// chromium returns the browser's path.
func chromium(t *testing.T) string {
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium: apt-get install -y --no-install-recommends chromium-headless-shell")
	return ""
}

// screenshots returns the folder of the screenshots: that of HEADGATE_SCREENSHOTS, or a temporary one.
func screenshots(t *testing.T) string {
	dir := os.Getenv("HEADGATE_SCREENSHOTS")
	if dir == "" {
		var err error
		dir, err = os.MkdirTemp("", "headgate-page-")
		require.NoError(t, err)
	}
	require.NoError(t, os.MkdirAll(dir, 0o755))
	t.Log("screenshots:", dir)
	return dir
}

// hostile are keys that try to change the page.
var hostile = []string{
	"<script>window.hacked=1</script>", `"><img src=x onerror="window.hacked=1">`, "\x00\x1b[2J\r\n\u202etxet",
	strings.Repeat("k", 4096), "\xff\xfe</table></main><h1>hacked</h1>", strings.Repeat("W\u0301", 60),
}

// served serves a page with all that it may show, and makes calls until the test's end.
func served(t *testing.T) string {
	store, err := standalone.Open("redis://"+redistest.Start(t).Addr(), &standalone.Options{Budget: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	perUser := limiter(t, memory.New(&memory.Options{MaxKeys: 10_000}), headgate.Policy{Name: "user-requests", Algorithm: algo.FixedWindow(algo.PerHour(20)), OnFailure: headgate.FailOpen})
	perOrg := limiter(t, store, headgate.Policy{Name: "organisation", Algorithm: algo.TokenBucket(algo.PerSecond(50), 100), OnFailure: headgate.FailOpen},
		headgate.Policy{Name: strings.Repeat("tokens", 10), Algorithm: algo.SlidingLog(algo.PerMinute(500)), OnFailure: headgate.FailClosed, Shadow: true})
	lending, err := perOrg.WithBorrow(100 * time.Millisecond)
	if err == nil {
		perOrg = lending
	}
	dead, err := standalone.Open("redis://127.0.0.1:1", nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = dead.Close() })
	away := limiter(t, dead, headgate.Policy{Name: "away", Algorithm: algo.SlidingWindow(algo.PerMinute(9)), OnFailure: headgate.FailClosed})
	page := statuspage.New(perUser, perOrg, away)
	t.Cleanup(page.Close)
	page.Keys = true
	page.Origin = func() statuspage.Origin {
		return statuspage.Origin{Source: "limits.yaml", Version: "3f2a90c1d4", Since: time.Now().Add(-time.Hour)}
	}
	page.Status()
	traffic(t, perUser, perOrg, away)
	mux := http.NewServeMux()
	mux.Handle("/debug/limits/", page)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/debug/limits/"
}

func limiter(t *testing.T, s backend.Store, policies ...headgate.Policy) *headgate.Limiter {
	l, err := headgate.New(s, policies, nil)
	require.NoError(t, err)
	return l
}

// traffic makes calls now, and goes on until the test ends.
func traffic(t *testing.T, perUser, perOrg, away *headgate.Limiter) {
	calls := func(n int) {
		for i := range n {
			for _, key := range hostile {
				_, _ = perUser.Allow(context.Background(), key)
			}
			_, _ = perUser.Allow(context.Background(), fmt.Sprint("user:", i))
			_, _ = perOrg.Allow(context.Background(), "org:7")
			_, _ = away.Allow(context.Background(), "user:1")
		}
	}
	calls(300)
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			case <-time.After(20 * time.Millisecond):
				calls(5)
			}
		}
	}()
	t.Cleanup(func() { close(ended); <-done })
}

// tab is a tab of the browser, and what its console shows.
type tab struct {
	context.Context
	mu    sync.Mutex
	lines []string
}

func open(t *testing.T, browser context.Context) *tab {
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	b := &tab{Context: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			b.lines = append(b.lines, fmt.Sprint(e.Type, " ", len(e.Args)))
		case *runtime.EventExceptionThrown:
			b.lines = append(b.lines, e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			b.lines = append(b.lines, e.Entry.Text+" "+e.Entry.URL)
		}
	})
	return b
}

func (b *tab) console() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines
}

// outside returns the elements that reach beyond the view, as does one that can be scrolled aside.
// What is in a region of its own that scrolls may.
const outside = `(() => {
	const view = document.documentElement.clientWidth;
	const all = [...document.querySelectorAll("body *:not(.scroll *)")].filter(e => { const r = e.getBoundingClientRect(); return r.width > 0 && (r.right > view + 0.5 || r.left < -0.5); });
	if (document.documentElement.scrollWidth > view) all.push(document.documentElement);
	return all.map(e => e.tagName + "." + (e.className.baseVal ?? e.className) + " " + e.textContent.slice(0, 40));
})()`

// browserOf starts Chromium, in a process group of its own: the browser's command is a script, and
// what that starts would outlive it.
func browserOf(t *testing.T) context.Context {
	var started *exec.Cmd
	t.Cleanup(func() {
		if started != nil && started.Process != nil {
			_ = syscall.Kill(-started.Process.Pid, syscall.SIGKILL)
		}
	})
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.Flag("hide-scrollbars", false),
		chromedp.ModifyCmdFunc(func(cmd *exec.Cmd) {
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			started = cmd
		}))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(cancel)
	browser, cancel := chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Run(browser))
	return browser
}

// looked loads a page at each width, in each scheme, with script and without: nothing is outside of
// the view, and the console is empty. It leaves screenshots.
func looked(t *testing.T, of, url string, check func(t *testing.T, b *tab, script bool)) {
	browser, dir := browserOf(t), screenshots(t)
	for _, width := range []int64{1280, 380} {
		for _, scheme := range []string{"light", "dark"} {
			for _, script := range []bool{true, false} {
				name := fmt.Sprintf("%s-%d-%s-script-%t", of, width, scheme, script)
				t.Run(name, func(t *testing.T) {
					b, picture, beyond := open(t, browser), []byte{}, []string{}
					require.NoError(t, chromedp.Run(b, log.Enable(), chromedp.EmulateViewport(width, 900),
						emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
						emulation.SetScriptExecutionDisabled(!script), chromedp.Navigate(url)))
					check(t, b, script)
					require.NoError(t, chromedp.Run(b, chromedp.Evaluate(outside, &beyond), chromedp.FullScreenshot(&picture, 100)))
					require.NoError(t, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600))
					require.Empty(t, beyond)
					require.Empty(t, b.console())
				})
			}
		}
	}
}

// TestPage: the live page follows the calls if it may run its script, and no key has run.
func TestPage(t *testing.T) {
	looked(t, "page", served(t), func(t *testing.T, b *tab, script bool) {
		state, hacked := "", false
		require.NoError(t, chromedp.Run(b, chromedp.Sleep(1500*time.Millisecond), chromedp.Text("#state", &state),
			chromedp.Evaluate(`"hacked" in window || document.querySelectorAll("h1").length > 1`, &hacked)))
		require.False(t, hacked)
		require.Equal(t, map[bool]string{true: "live", false: "snapshot"}[script], state)
	})
}

// TestReport: the report of headgate replay has its style, and the figures of its plots can be opened.
func TestReport(t *testing.T) {
	chromium(t)
	path := filepath.Join(t.TempDir(), "report.html")
	made, err := exec.Command("go", "test", "-C", "../../../cmd/headgate", ".", "-run", "^TestPage$", "-sample", path).CombinedOutput()
	require.NoError(t, err, string(made))
	looked(t, "report", "file://"+path, func(t *testing.T, b *tab, _ bool) {
		var closed, opened, plot float64
		const height = `document.querySelector("details").getBoundingClientRect().height`
		require.NoError(t, chromedp.Run(b, chromedp.Evaluate(height, &closed), chromedp.Click("summary", chromedp.ByQuery), chromedp.Evaluate(height, &opened),
			chromedp.Evaluate(`document.querySelector("svg.plot").getBoundingClientRect().height`, &plot)))
		require.Greater(t, opened, 2*closed)
		require.InDelta(t, 144, plot, 2, "9rem")
	})
}

// TestKeyboard: the page follows the calls, and its button is found and pressed by keyboard.
func TestKeyboard(t *testing.T) {
	b := open(t, browserOf(t))
	var first, then, paused, state string
	const totals = `document.querySelector("#live section p").textContent`
	require.NoError(t, chromedp.Run(b, chromedp.Navigate(served(t)), chromedp.WaitVisible("#pause"), chromedp.Evaluate(totals, &first)))
	for then = first; then == first; { // until the test's deadline
		require.NoError(t, chromedp.Run(b, chromedp.Sleep(100*time.Millisecond), chromedp.Evaluate(totals, &then)))
	}
	require.NoError(t, chromedp.Run(b, chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter), chromedp.Text("#state", &state),
		chromedp.Evaluate(totals, &then), chromedp.Sleep(2*time.Second), chromedp.Evaluate(totals, &paused)))
	require.Equal(t, "paused", state)
	require.Equal(t, then, paused)
}
