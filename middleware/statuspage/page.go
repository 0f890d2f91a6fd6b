package statuspage

import (
	"bytes"
	"embed"
	"encoding/json"
	"html/template"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/headgate-go/headgate"
)

// Page is the handler. Make one with New, and set its fields before it is served. It is safe for
// concurrent use. The zero Page shows no limits.
type Page struct {
	// Keys shows keys as they are. By default they are hashed: equal hashes of one process are one
	// key.
	Keys bool
	// Limits returns the limits that are shown, for limiters that come and go, such as those of a
	// file that is watched: see LimitsOf. Nil is those of New's limiters. It is called once per
	// second, and must not call the page. At most 1,000 limits are followed.
	Limits func() []Limit
	// Origin says where the limits come from; nil: it is not shown.
	Origin func() Origin

	limiters []*headgate.Limiter
	began    time.Time
	close    func()
	sampling sync.Mutex // one sample at a time, or counts would seem to fall
	mu       struct {
		sync.Mutex
		rows   map[rowID]*row
		stores []*storeRow
		more   int // limits that are not followed
	}
}

// Origin is where limits come from.
type Origin struct {
	Source  string    `json:"source"` // such as a file's name
	Version string    `json:"version"`
	Since   time.Time `json:"since"` // when they came into force
}

// Limit is a limit that a page shows.
type Limit struct {
	Name string
	Rule string // what it is, in words
	// Counts returns how many calls have passed, were denied by this limit, and were decided by no
	// store. None of them falls.
	Counts func() (passed, denied, undecided int64)
}

// New returns the page of limiters, and follows them until Close. Stores, circuits and the most
// denied keys are those of the stores that the limiters count in.
func New(limiters ...*headgate.Limiter) *Page {
	now, ended := time.Now(), make(chan struct{})
	p := &Page{limiters: limiters, began: now, close: sync.OnceFunc(func() { close(ended) })}
	p.mu.stores = storesOf(limiters)
	go p.follow(ended)
	return p
}

// Close ends what New began. The page is served all the same, as of its last second.
func (p *Page) Close() {
	if p.close != nil {
		p.close()
	}
}

// follow samples the counts, so that they have a history also if nobody looks.
func (p *Page) follow(ended <-chan struct{}) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			p.sample(now)
		case <-ended:
			return
		}
	}
}

//go:embed assets/page.html
//go:embed assets/page.css
//go:embed assets/page.js
//go:embed assets/icon.svg
var assets embed.FS

var pageTemplate = template.Must(template.New("page.html").Funcs(functions).ParseFS(assets, "assets/page.html"))

// csp forbids all but the page's own files.
const csp = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP serves the page at a path that ends with a slash, and its files below.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", csp)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	//mutant:page-is-read-only
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the page is read only", http.StatusMethodNotAllowed)
		return
	}
	switch name := path.Base(r.URL.Path); {
	case strings.HasSuffix(r.URL.Path, "/"):
		p.html(w)
	case name == "status.json":
		p.json(w)
	case name == "page.js" || name == "page.css" || name == "icon.svg":
		http.ServeFileFS(w, r, assets, "assets/"+name)
	default:
		http.NotFound(w, r)
	}
}

func (p *Page) html(w http.ResponseWriter) {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, p.Status()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, "text/html; charset=utf-8", b.Bytes())
}

func (p *Page) json(w http.ResponseWriter) {
	text, err := json.MarshalIndent(p.Status(), "", "\t")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, "application/json", append(text, '\n'))
}

func write(w http.ResponseWriter, kind string, text []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(text)
}
