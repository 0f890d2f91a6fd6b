package httplimit

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/headgate-go/headgate/middleware/internal/address"
)

// peer returns the address that the connection comes from; the zero Addr where
// that is no IP address.
func peer(r *http.Request) netip.Addr {
	addr, _ := parseHop(r.RemoteAddr)
	return addr
}

// longestHop is the longest text that is tried as an address: an IPv6 address
// with brackets, a zone and a port.
const longestHop = 96

// parseHop reads "192.0.2.1", "192.0.2.1:80", "2001:db8::1", "[2001:db8::1]"
// and "[2001:db8::1]:80", with a zone where there may be one.
func parseHop(s string) (netip.Addr, bool) {
	if len(s) > longestHop {
		return netip.Addr{}, false
	}
	host, port := s, ""
	if inner, ok := strings.CutPrefix(s, "["); ok {
		host, port, ok = strings.Cut(inner, "]")
		if !ok || !strings.Contains(host, ":") {
			return netip.Addr{}, false
		}
	} else if i := strings.IndexByte(s, ':'); i >= 0 && i == strings.LastIndexByte(s, ':') {
		host, port = s[:i], s[i:]
	}
	if !validPort(port) {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false
	}
	return address.Plain(addr), true
}

// validPort accepts "" and ":" with a port behind it.
func validPort(s string) bool {
	if s == "" {
		return true
	}
	digits, ok := strings.CutPrefix(s, ":")
	_, err := strconv.ParseUint(digits, 10, 16)
	return ok && err == nil
}

// trusted are the proxies. A few prefixes, IPv4 and IPv6 separately, are compared one by
// one: services have a handful of proxies.
type trusted struct {
	prefixes []netip.Prefix
	unix     bool // a Unix socket is a proxy's
}

// parseTrusted refuses a prefix of length 0 and an empty list, the two mistakes
// that let every client choose its key.
func parseTrusted(cidrs []string) (t trusted, err error) {
	if len(cidrs) == 0 {
		return t, invalid("trusted proxies", "none", "at least one prefix; without a proxy use RemoteAddr")
	}
	for _, s := range cidrs {
		if s == "unix" {
			t.unix = true
			continue
		}
		p, ok := parsePrefix(s)
		if !ok {
			return t, invalid("trusted proxy", s, "a prefix as 10.0.0.0/8, an address without a zone, or unix")
		}
		if p.Bits() == 0 {
			return t, invalid("trusted proxy", s, "not everybody: each client could choose its key")
		}
		t.prefixes = append(t.prefixes, p)
	}
	return t, nil
}

// parsePrefix reads a prefix or an address. A prefix of mapped IPv4 addresses
// becomes the one of IPv4 that it stands for, since netip matches no address of
// the other family.
func parsePrefix(s string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		addr, err := netip.ParseAddr(s)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, false
		}
		p = netip.PrefixFrom(addr, addr.BitLen())
	}
	if !p.Addr().Is4In6() {
		return p.Masked(), true
	}
	const mapped = 96 // bits of ::ffff:0:0/96
	if p.Bits() < mapped {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped).Masked(), true
}

func (t trusted) has(addr netip.Addr) bool {
	for _, p := range t.prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// peer reports whether the connection is a trusted proxy's, with its address; the zero
// Addr for a Unix socket.
func (t trusted) peer(r *http.Request) (netip.Addr, bool) {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && local.Network() == "unix" {
		return netip.Addr{}, t.unix
	}
	addr := peer(r)
	return addr, t.has(addr)
}

func (t trusted) trusts(r *http.Request) bool {
	_, ok := t.peer(r)
	return ok
}

// single returns the client's address by a header that a proxy sets. With a headerError it
// is the proxy's.
func (t trusted) single(r *http.Request, header string) (netip.Addr, error) {
	addr, ok := t.peer(r)
	//mutant:single-peer-verified
	if !ok {
		return addr, nil
	}
	value, err := single(r, header)
	if err != nil {
		return addr, err
	}
	if value = strings.Trim(value, " \t"); value == "" {
		return addr, &headerError{header, "absent", r.RemoteAddr}
	}
	if client, ok := parseHop(value); ok {
		return client, nil
	}
	return addr, &headerError{header, "no address", r.RemoteAddr}
}

// headerError is a header of a trusted proxy that has no address. The request counts by the
// address that is known, and the error is only logged.
type headerError struct{ header, is, peer string }

func (e *headerError) Error() string {
	return "header " + e.header + " is " + e.is + ", from the proxy " + e.peer
}

// noClient is the line of a headerError.
const noClient = "headgate: a trusted proxy sent no client address"
