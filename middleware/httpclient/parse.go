package httpclient

import (
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-go/headgate/middleware/internal/field"
)

// The names that a later draft may give the parameters.
const (
	availableLater = "a"
	windowLater    = "w"
)

// limitItem is what RateLimit, or RateLimit-Policy, has of one policy.
type limitItem struct {
	policy    string
	available int64  // units; -1 where it is absent
	window    int64  // seconds; -1 where it is absent
	quota     int64  // units, of RateLimit-Policy; -1 where it is absent
	unit      string // of the units, of RateLimit-Policy; "" for requests
}

// parseLimits reads the lines of RateLimit or RateLimit-Policy by any draft
// since the fields are lists. Members are strings or tokens, with r and t or a
// and w. A malformed field is nothing at all, as the draft demands, and so is
// one longer than a server has reason to send.
func parseLimits(lines []string) []limitItem {
	const longest = 8 << 10
	var items []limitItem
	p := &fieldParser{strings.Join(lines, ","), true}
	if len(p.s) > longest {
		return nil
	}
	for p.spaces(); p.ok && p.s != ""; p.spaces() {
		if p.take(',') { // an empty element, or the one that joins the lines
			continue
		}
		items = append(items, p.item())
		if p.spaces(); p.s != "" && !p.take(',') {
			return nil
		}
	}
	if !p.ok {
		return nil
	}
	return items
}

// lowest returns one item per policy. Of two of one name, as a proxy and its upstream
// send them, the one with fewer units holds. Of equal ones it is that of the longer window.
func lowest(items []limitItem) (kept []limitItem) {
	for _, item := range items {
		i := slices.IndexFunc(kept, func(k limitItem) bool { return k.policy == item.policy })
		switch {
		case i < 0:
			kept = append(kept, item)
		//mutant:lower-member-holds
		case item.below(kept[i]):
			kept[i] = item
		}
	}
	return kept
}

// below reports whether an item holds requests back more than another one.
func (item limitItem) below(other limitItem) bool {
	switch {
	case item.available < 0 || other.available < 0:
		return item.available >= 0
	case item.available == other.available:
		return item.window > other.window
	}
	return item.available < other.available
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// fieldParser reads structured fields (RFC 9651), as far as rate limits need
// them, from the front of s. It skips what it does not need, as a later draft
// may add parameters, and it never panics: the field is the server's. After a
// mistake ok stays false.
type fieldParser struct {
	s  string
	ok bool // all so far was well-formed
}

func (p *fieldParser) spaces() { p.s = strings.TrimLeft(p.s, " \t") }

func (p *fieldParser) take(c byte) bool {
	if p.s == "" || p.s[0] != c {
		return false
	}
	p.s = p.s[1:]
	return true
}

// item reads a policy's name with its parameters. Unknown ones are comments.
func (p *fieldParser) item() limitItem {
	item := limitItem{available: -1, window: -1, quota: -1}
	item.policy, _ = p.bare()
	for p.ok && p.take(';') {
		p.spaces()
		name, text, n := p.token(), "", int64(-1)
		if p.take('=') {
			text, n = p.bare()
		}
		switch name {
		case "":
			p.ok = false
		case field.Available, availableLater:
			item.available = n
		case field.Window, windowLater:
			item.window = n
		case "q":
			item.quota = n
		case "qu":
			item.unit = strings.TrimPrefix(text, "requests")
		}
	}
	return item
}

// bare reads a string, a token, a number or bytes. n is a whole number that is
// not negative, else -1.
func (p *fieldParser) bare() (text string, n int64) {
	switch {
	case p.take('"'):
		return p.quoted(), -1
	case p.take(':'):
		text, rest, ok := strings.Cut(p.s, ":")
		p.s, p.ok = rest, p.ok && ok
		return text, -1
	case p.take('?'):
		return p.token(), -1
	case p.take('%'): // a Display String
		p.ok = p.ok && p.take('"')
		return p.quoted(), -1
	}
	text = p.token()
	p.ok = p.ok && text != ""
	if !digits(text) {
		return text, -1
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > field.MaxInteger { // RFC 9651: 15 digits
		n = field.MaxInteger
	}
	return text, n
}

// quoted reads a string behind its first quote.
func (p *fieldParser) quoted() string {
	var b strings.Builder
	for i := 0; i < len(p.s); i++ {
		switch c := p.s[i]; {
		case c == '"':
			p.s = p.s[i+1:]
			return b.String()
		case c == '\\' && i+1 < len(p.s) && (p.s[i+1] == '"' || p.s[i+1] == '\\'):
			i++
			b.WriteByte(p.s[i])
		case c < ' ' || c > '~' || c == '\\':
			i = len(p.s)
		default:
			b.WriteByte(c)
		}
	}
	p.ok = false
	return ""
}

// token reads what no delimiter ends: a token, a parameter's name, a number.
func (p *fieldParser) token() string {
	i := strings.IndexAny(p.s, " \t,;=\"")
	if i < 0 {
		i = len(p.s)
	}
	text := p.s[:i]
	p.s = p.s[i:]
	return text
}
