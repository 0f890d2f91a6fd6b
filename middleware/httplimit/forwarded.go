package httplimit

import (
	"net/http"
	"net/netip"
	"strings"
)

// hops is a format: it cuts the last element off a header's line and reads its
// address. blank is an element without content, which lists may hold. ok is
// false where the element is no address, which ends the walk.
type hops func(line string) (rest string, addr netip.Addr, blank, ok bool)

// walk returns the client's address by a header that each proxy appends to. It
// looks at the elements that trusted proxies wrote and at no other: what a
// client sent along stands further left. With a headerError the address is that of the last
// proxy which is known.
func (t trusted) walk(r *http.Request, header string, cut hops) (netip.Addr, error) {
	addr, ok := t.peer(r)
	//mutant:peer-verified
	if !ok {
		return addr, nil
	}
	lines, absent := r.Header[header], true
	for i := len(lines) - 1; i >= 0; i-- {
		for rest := lines[i]; rest != ""; {
			var hop netip.Addr
			var blank, ok bool
			if rest, hop, blank, ok = cut(rest); blank {
				continue
			}
			if !ok {
				return addr, &headerError{header, "no address", r.RemoteAddr}
			}
			//mutant:walk-stops
			if addr, absent = hop, false; !t.has(addr) {
				return addr, nil
			}
		}
	}
	if absent {
		return addr, &headerError{header, "absent", r.RemoteAddr}
	}
	return addr, nil
}

// forwardedFor cuts the last element off a line of X-Forwarded-For.
func forwardedFor(line string) (rest string, addr netip.Addr, blank, ok bool) {
	last := line
	if i := strings.LastIndexByte(line, ','); i >= 0 {
		rest, last = line[:i], line[i+1:]
	}
	if last = strings.Trim(last, " \t"); last == "" {
		return rest, addr, true, true
	}
	addr, ok = parseHop(last)
	return rest, addr, false, ok
}

// forwarded cuts the last element off a line of Forwarded (RFC 7239), as
// for="[2001:db8::1]:80";proto=https.
//
// It scans from the right, so that quotes which a client left open can't
// swallow what a proxy appended. A proxy may quote what a client sent, as its
// Host: an element with a backslash is no address, since it could look like two.
func forwarded(line string) (rest string, addr netip.Addr, blank, ok bool) {
	i, closed := lastComma(line)
	last := line[i+1:]
	rest = line[:max(i, 0)]
	if strings.Trim(last, " \t") == "" {
		return rest, addr, true, true
	}
	if !closed || strings.IndexByte(last, '\\') >= 0 {
		return rest, addr, false, false
	}
	addr, ok = parseHop(forParameter(last))
	return rest, addr, false, ok
}

// lastComma returns where the last comma outside of quotes stands, -1 for none,
// and whether the quotes behind it are in pairs.
func lastComma(line string) (i int, closed bool) {
	quoted := false
	for i = len(line) - 1; i >= 0; i-- {
		switch {
		case line[i] == '"':
			quoted = !quoted
		case line[i] == ',' && !quoted:
			return i, true
		}
	}
	return -1, !quoted
}

// forParameter returns the value of the element's one parameter "for", without
// its quotes; "" where there is none, or more than one.
func forParameter(element string) (value string) {
	found := false
	for element != "" {
		var pair string
		pair, element = cutPair(element)
		name, v, ok := strings.Cut(strings.Trim(pair, " \t"), "=")
		if !ok || !strings.EqualFold(name, "for") {
			continue
		}
		if found {
			return ""
		}
		found, value = true, unquote(v)
	}
	return value
}

// cutPair cuts at the first semicolon outside of quotes.
func cutPair(s string) (pair, rest string) {
	quoted := false
	for i := range len(s) {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == ';' && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

func unquote(s string) string {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}
