package httplimit

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/middleware/internal/address"
	"github.com/headgate-go/headgate/middleware/internal/parts"
)

// Key says whose count a request is charged to. Make one with RemoteAddr,
// TrustedProxies, TrustedForwarders, TrustedAddress, Header, Authorization, Cookie,
// Pattern, Join, First or Func. The zero Key is refused by New. A Key is safe for concurrent
// use.
//
// Keys of different kinds never meet: a header's value can't name the count of
// an address. What a request without a key gets is Options.EmptyKey.
type Key struct {
	add    func(b []byte, r *http.Request, by asker) ([]byte, error) // or errNoKey, errUnmatched, a RequestError
	call   func(*http.Request) (headgate.Call, error)
	trusts func(*http.Request) bool // whether the peer is a proxy of the key; nil: it has none
	err    error
}

// asker is what a key needs of its user.
type asker struct {
	prefix int                        // bits of an IPv6 address
	warn   func(*http.Request, error) // logs a headerError
	proxy  bool                       // a First that has the key trusts the connection
}

// RemoteAddr is the address that the connection comes from. A request over a
// Unix socket has no key. Behind a proxy the address is the proxy's: use
// TrustedProxies there. A key is "ip:203.0.113.7" or "ip:2001:db8:1:2::/64".
//
// An IPv6 address counts by its prefix, see Options.IPv6Prefix. One that stands
// for an IPv4 address counts as that: of ::ffff:0:0/96 (mapped) and of
// 64:ff9b::/96 (NAT64). Other prefixes of translators count as any IPv6
// prefix, so clients may share one: use Func where a network has its own.
func RemoteAddr() Key {
	return addressKey(nil, func(r *http.Request) (netip.Addr, error) { return peer(r), nil })
}

// Of returns the text of a request's key, for a part of NewAll or a call inside of a
// handler. It is "" where the request has none. IPv6 addresses count by their /64. The error
// of a request that has several is a *RequestError. Warnings of TrustedProxies go to ErrorLog
// of the http.Server, or to the standard logger of package log. If the key is Pattern's, return no parts
// for "": then the mux answers what it does not match with 404 or 405.
func (k Key) Of(r *http.Request) (string, error) {
	switch {
	case k.err != nil:
		return "", k.err
	case k.call != nil:
		call, err := k.call(r)
		return call.Key, err
	case k.add == nil:
		return "", invalid("key", "Key{}", "one made by a function of package httplimit, as RemoteAddr")
	}
	b, err := k.add(nil, r, asker{prefix: address.Prefix, warn: warnServer})
	if err == errNoKey || err == errUnmatched {
		return "", nil
	}
	return string(b), err
}

// TrustedProxies is the address of the client behind proxies that append to
// X-Forwarded-For. cidrs are the proxies' prefixes or addresses, as
// "10.0.0.0/8" or "2001:db8::1", and "unix" for a proxy that connects by a Unix socket.
// At least one is needed, and none of length 0, with which every client could choose
// its key.
//
// The header counts only where the connection comes from one of them. It is
// read from right to left, all its lines as one list, up to the first address
// that is no trusted proxy's. An element that is no address ends the walk: the
// request counts for the proxy that reported it. Ports and zones are dropped. The
// keys are RemoteAddr's, as "ip:203.0.113.7".
//
// If a trusted proxy sends no such header, or its part of it is no address, all clients of
// the proxy count as one. The limiter's Logger gets a warning with the header and the
// peer, at most one per second. A health check of the proxy has it too, unless
// Options.Skip passes it.
func TrustedProxies(cidrs ...string) Key {
	t, err := parseTrusted(cidrs)
	if err != nil {
		return Key{err: err}
	}
	return addressKey(t.trusts, func(r *http.Request) (netip.Addr, error) {
		return t.walk(r, "X-Forwarded-For", forwardedFor)
	})
}

// TrustedForwarders is TrustedProxies for proxies that append to Forwarded
// (RFC 7239). It reads only that header, since a proxy that writes the one
// passes the other on as the client sent it. The keys are RemoteAddr's, as
// "ip:203.0.113.7". The warnings are those of TrustedProxies.
func TrustedForwarders(cidrs ...string) Key {
	t, err := parseTrusted(cidrs)
	if err != nil {
		return Key{err: err}
	}
	return addressKey(t.trusts, func(r *http.Request) (netip.Addr, error) { return t.walk(r, "Forwarded", forwarded) })
}

// TrustedAddress is the address of the client in a header that holds one address and
// that a proxy sets on each request. Examples are CF-Connecting-IP (Cloudflare),
// True-Client-IP (Akamai, Cloudflare), Fly-Client-IP, or X-Real-IP where nginx sets it.
// cidrs are the proxies, as those of TrustedProxies. A connection that comes from
// elsewhere counts by its own address, and one whose header is no address by the proxy's.
// A header that is given several times is a *RequestError. The keys are RemoteAddr's, as
// "ip:203.0.113.7". The warnings are those of TrustedProxies.
func TrustedAddress(header string, cidrs ...string) Key {
	t, err := parseTrusted(cidrs)
	if err != nil {
		return Key{err: err}
	}
	canonical := http.CanonicalHeaderKey(header)
	if canonical == "X-Forwarded-For" || canonical == "Forwarded" || !token(header) {
		return Key{err: invalid("header", header, "the name of a header that holds one address, as CF-Connecting-IP")}
	}
	return addressKey(t.trusts, func(r *http.Request) (netip.Addr, error) { return t.single(r, canonical) })
}

// addressKey is the key of an address, wherever that is found. All kinds share
// the prefix "ip:", so a service that moves behind a proxy keeps its counts.
func addressKey(trusts func(*http.Request) bool, of func(*http.Request) (netip.Addr, error)) Key {
	pace := new(parts.Pace)
	return Key{trusts: trusts, add: func(b []byte, r *http.Request, by asker) ([]byte, error) {
		//mutant:only-proxies-by-network
		if by.proxy && trusts != nil && !trusts(r) {
			return b, errNoKey
		}
		addr, err := of(r)
		if header, ok := err.(*headerError); ok {
			//mutant:wrong-header-paced
			if err = nil; pace.Due() {
				by.warn(r, header)
			}
		}
		switch {
		case err != nil:
			return b, err
		case !addr.IsValid():
			return b, errNoKey
		}
		return address.AppendKey(b, addr, by.prefix), nil
	}}
}

// Header is the value of a header. The key holds a hash of the value, never the value:
// SHA-256, cut to 128 bits, as "header:X-Api-Key:2bb80d537b1da3e38bd30361aa855686". A
// request where the value is empty has no key. One that has the header several times is
// a *RequestError: which of them another reader takes is unknown.
//
// Use it where the value was authenticated before this middleware runs. A
// client that may send any value chooses its key, a new one for each request. For
// Authorization use the function of that name.
func Header(name string) Key {
	canonical := http.CanonicalHeaderKey(name)
	switch canonical {
	case "", "Host":
		return Key{err: invalid("header", name, "the name of a header; Host is none for net/http")}
	case "X-Forwarded-For", "Forwarded":
		return Key{err: invalid("header", name, "TrustedProxies or TrustedForwarders, since any client can send it")}
	case "Authorization":
		return Key{err: invalid("header", name, "Authorization(), since one value has many spellings")}
	}
	if !token(name) {
		return Key{err: invalid("header", name, "the name of a header")}
	}
	return hashed("header:"+canonical+":", func(r *http.Request) (string, error) { return single(r, canonical) })
}

// token reports whether name can be that of a header.
func token(name string) bool { return name != "" && !strings.ContainsAny(name, " \t\r\n:|") }

// single returns the value of a header that may be given once.
func single(r *http.Request, canonical string) (string, error) {
	switch lines := r.Header[canonical]; len(lines) {
	case 0:
		return "", nil
	case 1:
		return lines[0], nil
	}
	//mutant:several-headers-refused
	return "", several("header " + canonical)
}

// Authorization is the credentials of a request, hashed like a Header and with the same
// warning. The spellings of one value have one key: the scheme counts in lower case, and
// one space follows it. Credentials of the scheme Basic count by the decoded user and
// password. A token of another scheme counts as it is: authenticate first, since a lenient
// reader may accept several spellings of it. A key is
// "authorization:2bb80d537b1da3e38bd30361aa855686", and the same as that of
// grpclimit.Authorization().
func Authorization() Key {
	return hashed("authorization:", func(r *http.Request) (string, error) {
		v, err := single(r, "Authorization")
		return address.Credentials(v), err
	})
}

// Cookie is the value of a cookie, hashed like a Header and with the same
// warning. A request that has several of that name is a *RequestError. A
// key is "cookie:session:2bb80d537b1da3e38bd30361aa855686".
func Cookie(name string) Key {
	if (&http.Cookie{Name: name}).Valid() != nil {
		return Key{err: invalid("cookie", name, "the name of a cookie")}
	}
	return hashed("cookie:"+name+":", func(r *http.Request) (string, error) {
		switch cookies := r.CookiesNamed(name); len(cookies) {
		case 0:
			return "", nil
		case 1:
			return cookies[0].Value, nil
		}
		//mutant:several-cookies-refused
		return "", several("cookie " + name)
	})
}

// hashed keeps secrets, as API keys and session cookies, out of the store, of
// logs and of metrics. 128 bits are enough, since two values can't be chosen of
// one hash.
func hashed(kind string, value func(*http.Request) (string, error)) Key {
	return Key{add: func(b []byte, r *http.Request, _ asker) ([]byte, error) {
		v, err := value(r)
		switch {
		case err != nil:
			return b, err
		case v == "":
			return b, errNoKey
		}
		n := len(b)
		sum := sha256.Sum256(append(b, v...)[n:])
		return hex.AppendEncode(append(b, kind...), sum[:16]), nil
	}}
}

// Pattern is the pattern of http.ServeMux that the request matched, as "GET
// /items/{id}": one count per route. With a nil mux it is the request's own
// Pattern, which the mux sets before it calls a handler. Then the middleware
// has to wrap the handlers in the mux. To wrap the mux as a whole, pass it. A key is
// "pattern:GET /items/{id}".
//
// A request that matches no pattern, and a CONNECT, has no key, so that random
// paths neither make keys nor share one. Options.EmptyKey decides on it. With
// EmptyRefused, what the mux passed here does not match goes uncounted to the mux, which
// answers 404 or 405.
func Pattern(mux *http.ServeMux) Key {
	return Key{add: func(b []byte, r *http.Request, _ asker) ([]byte, error) {
		pattern := r.Pattern
		if mux != nil {
			pattern = matched(mux, r)
		}
		switch {
		case r.Method == http.MethodConnect: // of which the mux redirects, it names the path
			return b, errNoKey
		//mutant:mux-answers-unmatched
		case pattern == "" && mux != nil:
			return b, errUnmatched
		case pattern == "":
			return b, errNoKey
		}
		return append(append(b, "pattern:"...), pattern...), nil
	}}
}

// matcher is an http.ServeMux. A test gives another, with what older releases
// of Go return.
type matcher interface {
	Handler(*http.Request) (http.Handler, string)
}

// matched returns the pattern that a request matches. Where the mux redirects
// to the path with a slash, that before Go 1.26 returns the path, which the
// client chose, as the pattern. Such a request counts as the one that follows.
func matched(mux matcher, r *http.Request) string {
	_, pattern := mux.Handler(r)
	redirect := len(pattern) > 1 && pattern[0] == '/' && strings.HasSuffix(pattern, "/") &&
		!strings.HasSuffix(r.URL.EscapedPath(), "/") // or pattern is a tree's, to which a slash makes no difference
	//mutant:redirect-matched
	if redirect {
		next, u := *r, *r.URL
		next.URL, u.Path = &u, u.Path+"/"
		if u.RawPath != "" {
			u.RawPath += "/"
		}
		_, pattern = mux.Handler(&next)
	}
	return pattern
}

// Join is several keys as one, as Join(RemoteAddr(), Pattern(nil)): a count per
// client and route. A key is "ip:203.0.113.7|pattern:GET /items/{id}". A request
// without one of them has no key. Func can't be joined.
func Join(keys ...Key) Key {
	if err := checkKeys("Join", keys); err != nil {
		return Key{err: err}
	}
	//mutant:join-trusts
	return Key{trusts: trusts(keys), add: func(b []byte, r *http.Request, by asker) (_ []byte, err error) {
		for i, k := range keys {
			if i > 0 {
				b = append(b, '|')
			}
			if b, err = k.add(b, r, by); err != nil {
				return b, err
			}
		}
		return b, nil
	}}
}

// First is the first of several keys that a request has. For example,
// First(Header("X-API-Key"), RemoteAddr()) counts by the API key, and requests without
// one by address. The text is that key's own. A request that has none of them has no
// key. The error of a key, as of a header that is given several times, ends the search.
// Func can't be among them.
//
// A client chooses which of the keys it sends. So each but the last must be a value that
// was authenticated before this middleware runs; see Header.
//
// Keys of proxies are chosen by the network of the connection. With
// First(TrustedAddress(header, edge...), TrustedProxies(balancer...)) a connection from the
// edge counts by that header, and one from the balancer by X-Forwarded-For. A connection
// that no key trusts counts by its own address, as with the first of them alone. A trusted
// proxy that lacks its header does not go on to the next key.
func First(keys ...Key) Key {
	if err := checkKeys("First", keys); err != nil {
		return Key{err: err}
	}
	trusts := trusts(keys)
	return Key{trusts: trusts, add: func(b []byte, r *http.Request, by asker) (with []byte, err error) {
		by.proxy = by.proxy || trusts(r)
		for _, k := range keys {
			//mutant:error-ends-search
			if with, err = k.add(b, r, by); err != errNoKey && err != errUnmatched {
				break
			}
		}
		return with, err
	}}
}

// trusts reports whether one of the keys is that of a proxy which the connection comes from.
func trusts(keys []Key) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return slices.ContainsFunc(keys, func(k Key) bool { return k.trusts != nil && k.trusts(r) })
	}
}

// checkKeys returns the error of a list that Join or First can't combine.
func checkKeys(name string, keys []Key) error {
	for _, k := range keys {
		//mutant:wrong-key-refused
		if k.err != nil {
			return k.err
		}
		if k.add == nil {
			return invalid("key", "in "+name, "one made by a function of package httplimit, other than Func")
		}
	}
	if len(keys) == 0 {
		return invalid("key", name+"()", "at least one key")
	}
	return nil
}

// Func is a key of the caller's own: of an authenticated user, or with costs of
// its own. A call with the key "" is a request without a key. An error goes to
// Options.OnError, and to the limiter's Logger, at most once per second. f must be safe
// for concurrent use.
func Func(f func(*http.Request) (headgate.Call, error)) Key {
	if f == nil {
		return Key{err: invalid("key", "Func(nil)", "a function")}
	}
	return Key{call: f}
}

func invalid(what string, value any, want string) error {
	return &headgate.InvalidError{What: what, Value: value, Want: want}
}
