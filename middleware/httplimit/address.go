package httplimit

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// peer returns the address that the connection comes from; the zero Addr where
// that is no IP address.
func peer(r *http.Request) netip.Addr {
	addr, _ := parseHop(r.RemoteAddr)
	return addr
}

// nat64 is the well-known prefix of IPv6 addresses that stand for IPv4 ones
// (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// defaultIPv6Prefix is the length of one network's prefix (RFC 4291, section 2.5.1).
const defaultIPv6Prefix = 64

// appendAddr appends an IPv4 address, or the prefix of an IPv6 address: whoever
// has one address of an IPv6 network usually has all of it. That does not hold
// of nat64, which has all clients of IPv4. Its addresses are translated here, so
// that none is taken for a trusted proxy's before.
func appendAddr(b []byte, addr netip.Addr, prefix int) []byte {
	if nat64.Contains(addr) { // mutant: nat64-translated
		bytes := addr.As16()
		addr = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	if addr.Is4() {
		return addr.AppendTo(b)
	}
	p, err := addr.Prefix(prefix)
	if err != nil { // New has checked the length
		return addr.AppendTo(b)
	}
	return p.AppendTo(b)
}

// plain returns the address without its zone, and a mapped IPv4 address as
// IPv4. Otherwise a mask for IPv6 would put every IPv4 client on one key.
func plain(addr netip.Addr) netip.Addr { return addr.WithZone("").Unmap() } // mutant: mapped-unmapped

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
	return plain(addr), true
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

// trusted are the prefixes of the proxies, IPv4 and IPv6 apart. A few are
// compared one by one: services have a handful of proxies.
type trusted []netip.Prefix

// parseTrusted refuses a prefix of length 0 and an empty list, the two mistakes
// that let every client choose its key.
func parseTrusted(cidrs []string) (trusted, error) {
	if len(cidrs) == 0 {
		return nil, invalid("trusted proxies", "none", "at least one prefix; without a proxy use RemoteAddr")
	}
	t := make(trusted, len(cidrs))
	for i, s := range cidrs {
		p, ok := parsePrefix(s)
		if !ok {
			return nil, invalid("trusted proxy", s, "a prefix as 10.0.0.0/8, or an address, without a zone")
		}
		if p.Bits() == 0 {
			return nil, invalid("trusted proxy", s, "not everybody: each client could choose its key")
		}
		t[i] = p
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
	for _, p := range t {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
