// Package address makes keys of the addresses of clients, alike for every protocol.
package address

import "net/netip"

// Prefix is the length of one network's prefix (RFC 4291, section 2.5.1).
const Prefix = 64

// nat64 is the well-known prefix of IPv6 addresses that stand for IPv4 ones
// (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// AppendKey appends "ip:" and an IPv4 address, or the prefix of an IPv6 address. A client
// that has one address of an IPv6 network usually has all of it. That does not hold of
// nat64, which has all clients of IPv4. Its addresses are translated here, so that none
// is taken for a trusted proxy's before.
func AppendKey(b []byte, addr netip.Addr, prefix int) []byte {
	b = append(b, "ip:"...)
	//mutant:nat64-translated
	if nat64.Contains(addr) {
		bytes := addr.As16()
		addr = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	if addr.Is4() {
		return addr.AppendTo(b)
	}
	p, err := addr.Prefix(prefix)
	if err != nil { // the length was checked before
		return addr.AppendTo(b)
	}
	return p.AppendTo(b)
}

// Plain returns the address without its zone, and a mapped IPv4 address as
// IPv4. Otherwise a mask for IPv6 would put every IPv4 client on one key.
//
//mutant:mapped-unmapped
func Plain(addr netip.Addr) netip.Addr { return addr.WithZone("").Unmap() }
