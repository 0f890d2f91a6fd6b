package httplimit

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The proxies of the table: 10.0.0.0/8, 203.0.113.7 and 2001:db8:ff::/48.
var proxies = []string{"10.0.0.0/8", "203.0.113.7", "2001:db8:ff::/48"}

// junk is a header of 64 KiB that holds no address.
var junk = strings.Repeat("z", 64<<10)

type addressCase struct {
	name   string
	remote string
	lines  []string // of X-Forwarded-For, or of Forwarded
	want   string   // key; "" is none
}

// request returns one as net/http's server makes it.
func (c *addressCase) request(header string) *http.Request {
	return &http.Request{RemoteAddr: c.remote, Header: http.Header{header: c.lines, "X-Real-Ip": {"6.6.6.6"}}}
}

func keyOf(k Key, r *http.Request) string {
	b, err := k.add(nil, r, asker{prefix: 64, warn: func(*http.Request, error) {}})
	if err != nil {
		return ""
	}
	return string(b)
}

func checkAddresses(t *testing.T, k Key, header string, cases []addressCase) {
	t.Helper()
	require.NoError(t, k.err)
	for _, c := range cases {
		require.Equal(t, c.want, keyOf(k, c.request(header)), c.name)
	}
}

func TestRemoteAddr(t *testing.T) {
	checkAddresses(t, RemoteAddr(), "X-Forwarded-For", []addressCase{
		{"IPv4", "192.0.2.1:1234", nil, "ip:192.0.2.1"},
		{"another port is the same client", "192.0.2.1:65535", nil, "ip:192.0.2.1"},
		{"IPv6 by /64", "[2001:db8:1:2:3:4:5:6]:80", nil, "ip:2001:db8:1:2::/64"},
		{"another address of the /64", "[2001:db8:1:2:ffff::]:80", nil, "ip:2001:db8:1:2::/64"},
		{"the next /64 is another client", "[2001:db8:1:3::1]:80", nil, "ip:2001:db8:1:3::/64"},
		{"mapped IPv4", "[::ffff:192.0.2.1]:80", nil, "ip:192.0.2.1"},
		{"mapped IPv4, in hexadecimal", "[::ffff:c000:201]:80", nil, "ip:192.0.2.1"},
		{"two mapped addresses are two clients", "[::ffff:192.0.2.2]:80", nil, "ip:192.0.2.2"},
		{"NAT64", "[64:ff9b::192.0.2.1]:80", nil, "ip:192.0.2.1"},
		{"NAT64, in hexadecimal", "[64:ff9b::c000:201]:80", nil, "ip:192.0.2.1"},
		{"two NAT64 addresses are two clients", "[64:ff9b::192.0.2.2]:80", nil, "ip:192.0.2.2"},
		{"NAT64 with a zone", "[64:ff9b::192.0.2.1%eth0]:80", nil, "ip:192.0.2.1"},
		{"beside the NAT64 prefix", "[64:ff9b::1:192.0.2.1]:80", nil, "ip:64:ff9b::/64"},
		{"a network's own NAT64 prefix", "[64:ff9b:1::192.0.2.1]:80", nil, "ip:64:ff9b:1::/64"},
		{"IPv4-translated is no mapped address", "[::ffff:0:192.0.2.1]:80", nil, "ip:::/64"},
		{"IPv4-compatible, which no route has", "[::192.0.2.1]:80", nil, "ip:::/64"},
		{"6to4: a site", "[2002:c000:201::5]:80", nil, "ip:2002:c000:201::/64"},
		{"another 6to4 site", "[2002:c000:202::5]:80", nil, "ip:2002:c000:202::/64"},
		{"zone", "[fe80::1%eth0]:80", nil, "ip:fe80::/64"},
		{"loopback", "[::1]:80", nil, "ip:::/64"},
		{"no port", "192.0.2.1", nil, "ip:192.0.2.1"},
		{"IPv6, no port", "2001:db8:1:2::1", nil, "ip:2001:db8:1:2::/64"},
		{"the header is not read", "192.0.2.1:80", []string{"6.6.6.6"}, "ip:192.0.2.1"},
		{"Unix socket", "@", nil, ""},
		{"empty", "", nil, ""},
		{"a name", "localhost:80", nil, ""},
		{"too large a port", "192.0.2.1:65536", nil, ""},
		{"junk", junk, nil, ""},
	})
}

func TestTrustedProxies(t *testing.T) {
	const proxy = "10.1.2.3:4444"
	checkAddresses(t, TrustedProxies(proxies...), "X-Forwarded-For", []addressCase{
		{"no proxy, no header", "192.0.2.1:80", nil, "ip:192.0.2.1"},
		{"no proxy: spoofed", "192.0.2.1:80", []string{"6.6.6.6"}, "ip:192.0.2.1"},
		{"no proxy: spoofed as a proxy's", "192.0.2.1:80", []string{"6.6.6.6, 10.0.0.1"}, "ip:192.0.2.1"},
		{"no proxy: 64 KiB", "192.0.2.1:80", []string{junk}, "ip:192.0.2.1"},
		{"one proxy", proxy, []string{"192.0.2.1"}, "ip:192.0.2.1"},
		{"one proxy: spoofed on the left", proxy, []string{"6.6.6.6, 192.0.2.1"}, "ip:192.0.2.1"},
		{"one proxy: spoofed as trusted", proxy, []string{"6.6.6.6, 10.0.0.9, 192.0.2.1"}, "ip:192.0.2.1"},
		{"one proxy: spoofed in a line of its own", proxy, []string{"6.6.6.6", "192.0.2.1"}, "ip:192.0.2.1"},
		{"one proxy: lines are one list", proxy, []string{"6.6.6.6, 7.7.7.7", "192.0.2.1"}, "ip:192.0.2.1"},
		{"two proxies", proxy, []string{"192.0.2.1, 10.0.0.9"}, "ip:192.0.2.1"},
		{"two proxies, two lines", proxy, []string{"192.0.2.1", "10.0.0.9"}, "ip:192.0.2.1"},
		{"three proxies of three prefixes", proxy, []string{"192.0.2.1, 203.0.113.7, 2001:db8:ff::9"}, "ip:192.0.2.1"},
		{"the neighbour of a proxy is none", proxy, []string{"6.6.6.6, 203.0.113.8"}, "ip:203.0.113.8"},
		{"only proxies: the first of them", proxy, []string{"10.0.0.7, 10.0.0.8"}, "ip:10.0.0.7"},
		{"no header", proxy, nil, "ip:10.1.2.3"},
		{"empty header", proxy, []string{""}, "ip:10.1.2.3"},
		{"blank header", proxy, []string{" \t "}, "ip:10.1.2.3"},
		{"empty elements", proxy, []string{"192.0.2.1, , ,"}, "ip:192.0.2.1"},
		{"empty line behind", proxy, []string{"192.0.2.1", ""}, "ip:192.0.2.1"},
		{"no spaces", proxy, []string{"6.6.6.6,192.0.2.1,10.0.0.8"}, "ip:192.0.2.1"},
		{"tabs", proxy, []string{"6.6.6.6,\t192.0.2.1\t,\t10.0.0.8"}, "ip:192.0.2.1"},
		{"port", proxy, []string{"192.0.2.1:5555"}, "ip:192.0.2.1"},
		{"port 0", proxy, []string{"192.0.2.1:0"}, "ip:192.0.2.1"},
		{"port that is none: the proxy", proxy, []string{"6.6.6.6, 192.0.2.1:http"}, "ip:10.1.2.3"},
		{"port without digits: the proxy", proxy, []string{"6.6.6.6, 192.0.2.1:"}, "ip:10.1.2.3"},
		{"port with a sign: the proxy", proxy, []string{"6.6.6.6, 192.0.2.1:+80"}, "ip:10.1.2.3"},
		{"IPv6", proxy, []string{"2001:db8:1:2::5"}, "ip:2001:db8:1:2::/64"},
		{"IPv6 in brackets", proxy, []string{"[2001:db8:1:2::5]"}, "ip:2001:db8:1:2::/64"},
		{"IPv6 with a port", proxy, []string{"[2001:db8:1:2::5]:443"}, "ip:2001:db8:1:2::/64"},
		{"IPv6 in capitals", proxy, []string{"2001:DB8:1:2::5"}, "ip:2001:db8:1:2::/64"},
		{"IPv6 with zeros", proxy, []string{"2001:0db8:0001:0002:0000:0000:0000:0005"}, "ip:2001:db8:1:2::/64"},
		{"IPv6 with a zone", proxy, []string{"fe80::5%eth0"}, "ip:fe80::/64"},
		{"zones are no way to more keys", proxy, []string{"[fe80::5%x1]:80"}, "ip:fe80::/64"},
		{"zone of 64 KiB: the proxy", proxy, []string{"fe80::5%" + junk}, "ip:10.1.2.3"},
		{"mapped IPv4", proxy, []string{"::ffff:192.0.2.1"}, "ip:192.0.2.1"},
		{"mapped IPv4 with a port", proxy, []string{"[::ffff:192.0.2.1]:80"}, "ip:192.0.2.1"},
		{"mapped IPv4 of a proxy is trusted", proxy, []string{"192.0.2.1, ::ffff:10.0.0.8"}, "ip:192.0.2.1"},
		{"NAT64", proxy, []string{"6.6.6.6, 64:ff9b::192.0.2.1"}, "ip:192.0.2.1"},
		{"NAT64 with a port", proxy, []string{"[64:ff9b::192.0.2.1]:80"}, "ip:192.0.2.1"},
		{"NAT64 of a proxy's address is no proxy", proxy, []string{"6.6.6.6, 64:ff9b::10.0.0.8"}, "ip:10.0.0.8"},
		{"NAT64 peer of a proxy's address is no proxy", "[64:ff9b::10.1.2.3]:80", []string{"6.6.6.6"}, "ip:10.1.2.3"},
		{"mapped peer is trusted", "[::ffff:10.1.2.3]:80", []string{"192.0.2.1"}, "ip:192.0.2.1"},
		{"IPv6 peer is trusted", "[2001:db8:ff::1]:80", []string{"192.0.2.1"}, "ip:192.0.2.1"},
		{"IPv6 peer beside the prefix is not", "[2001:db8:fe::1]:80", []string{"6.6.6.6"}, "ip:2001:db8:fe::/64"},
		{"brackets around IPv4: the proxy", proxy, []string{"[192.0.2.1]"}, "ip:10.1.2.3"},
		{"bracket left open: the proxy", proxy, []string{"[2001:db8::5"}, "ip:10.1.2.3"},
		{"text behind the bracket: the proxy", proxy, []string{"[2001:db8::5]x"}, "ip:10.1.2.3"},
		{"unknown: the proxy", proxy, []string{"6.6.6.6, unknown"}, "ip:10.1.2.3"},
		{"junk stops the walk at the proxy that reported it", proxy, []string{"6.6.6.6, junk, 10.0.0.8"}, "ip:10.0.0.8"},
		{"junk on the left is not reached", proxy, []string{"junk, 192.0.2.1, 10.0.0.8"}, "ip:192.0.2.1"},
		{"leading zeros: the proxy", proxy, []string{"6.6.6.6, 192.0.02.1"}, "ip:10.1.2.3"},
		{"too many octets: the proxy", proxy, []string{"192.0.2.1.5"}, "ip:10.1.2.3"},
		{"a number: the proxy", proxy, []string{"3221225985"}, "ip:10.1.2.3"},
		{"hexadecimal: the proxy", proxy, []string{"0xc0000201"}, "ip:10.1.2.3"},
		{"a prefix: the proxy", proxy, []string{"192.0.2.0/24"}, "ip:10.1.2.3"},
		{"semicolons: the proxy", proxy, []string{"6.6.6.6; 192.0.2.1"}, "ip:10.1.2.3"},
		{"quotes: the proxy", proxy, []string{`6.6.6.6, "192.0.2.1"`}, "ip:10.1.2.3"},
		{"NUL: the proxy", proxy, []string{"192.0.2.1\x00"}, "ip:10.1.2.3"},
		{"Unicode digits: the proxy", proxy, []string{"١٩٢.0.2.1"}, "ip:10.1.2.3"},
		{"other spaces: the proxy", proxy, []string{"192.0.2.1\u00a0"}, "ip:10.1.2.3"},
		{"64 KiB of junk: the proxy", proxy, []string{junk}, "ip:10.1.2.3"},
		{"64 KiB of junk on the left", proxy, []string{junk + ", 192.0.2.1"}, "ip:192.0.2.1"},
		{"64 KiB of addresses on the left", proxy, []string{strings.Repeat("6.6.6.6, ", 7300) + "192.0.2.1"}, "ip:192.0.2.1"},
		{"64 KiB of commas", proxy, []string{"192.0.2.1" + strings.Repeat(",", 64<<10)}, "ip:192.0.2.1"},
		{"64 KiB of spaces", proxy, []string{"192.0.2.1" + strings.Repeat(" ", 64<<10)}, "ip:192.0.2.1"},
		{"1,000 spoofed lines", proxy, append(strings.Split(strings.Repeat("6.6.6.6 ", 999), " "), "192.0.2.1"), "ip:192.0.2.1"},
		{"unspecified", proxy, []string{"0.0.0.0"}, "ip:0.0.0.0"},
		{"Unix socket", "@", []string{"6.6.6.6"}, ""},
		{"no peer", "", []string{"6.6.6.6"}, ""},
	})
}

func TestTrustedForwarders(t *testing.T) {
	const proxy = "10.1.2.3:4444"
	checkAddresses(t, TrustedForwarders(proxies...), "Forwarded", []addressCase{
		{"no proxy: spoofed", "192.0.2.1:80", []string{"for=6.6.6.6"}, "ip:192.0.2.1"},
		{"one proxy", proxy, []string{"for=192.0.2.1"}, "ip:192.0.2.1"},
		{"parameters", proxy, []string{"proto=https;FOR=192.0.2.1;by=10.0.0.1"}, "ip:192.0.2.1"},
		{"spoofed on the left", proxy, []string{"for=6.6.6.6, for=192.0.2.1"}, "ip:192.0.2.1"},
		{"spoofed line", proxy, []string{"for=6.6.6.6", "for=192.0.2.1, for=10.0.0.8"}, "ip:192.0.2.1"},
		{"a quote left open swallows nothing", proxy, []string{`for="6.6.6.6, for=192.0.2.1`}, "ip:192.0.2.1"},
		{"quoted IPv6 with a port", proxy, []string{`for="[2001:db8:1:2::5]:443"`}, "ip:2001:db8:1:2::/64"},
		{"quoted IPv4 with a port", proxy, []string{`for="192.0.2.1:443";proto=http`}, "ip:192.0.2.1"},
		{"mapped", proxy, []string{`for="[::ffff:192.0.2.1]"`}, "ip:192.0.2.1"},
		{"comma in quotes", proxy, []string{`for=192.0.2.1;host="a, for=6.6.6.6"`}, "ip:192.0.2.1"},
		{"semicolon in quotes", proxy, []string{`host="x;for=6.6.6.6";for=192.0.2.1`}, "ip:192.0.2.1"},
		{"escaped quotes: the proxy", proxy, []string{`for=192.0.2.1;host="x\", for=6.6.6.6;y=\"z"`}, "ip:10.1.2.3"},
		{"backslash at the end: the proxy", proxy, []string{`for=192.0.2.1;host="x\\"`}, "ip:10.1.2.3"},
		{"twice for: the proxy", proxy, []string{"for=6.6.6.6;for=192.0.2.1"}, "ip:10.1.2.3"},
		{"no for: the proxy", proxy, []string{"for=6.6.6.6, proto=https"}, "ip:10.1.2.3"},
		{"unknown: the proxy", proxy, []string{"for=6.6.6.6, for=unknown"}, "ip:10.1.2.3"},
		{"hidden: the proxy", proxy, []string{"for=6.6.6.6, for=_secret"}, "ip:10.1.2.3"},
		{"quotes not in pairs: the proxy", proxy, []string{`for=6.6.6.6, for=192.0.2.1"`}, "ip:10.1.2.3"},
		{"spaces around =: the proxy", proxy, []string{"for = 192.0.2.1"}, "ip:10.1.2.3"},
		{"bare address: the proxy", proxy, []string{"192.0.2.1"}, "ip:10.1.2.3"},
		{"64 KiB of quotes", proxy, []string{strings.Repeat(`"`, 64<<10) + ", for=192.0.2.1"}, "ip:192.0.2.1"},
		{"64 KiB of junk: the proxy", proxy, []string{"for=" + junk}, "ip:10.1.2.3"},
		{"64 KiB of parameters: the proxy", proxy, []string{strings.Repeat("a;", 32<<10)}, "ip:10.1.2.3"},
		{"empty", proxy, []string{"", " , ,"}, "ip:10.1.2.3"},
	})
}

// TestOneHeader: a proxy that writes the one header passes the other on, as the
// client sent it.
func TestOneHeader(t *testing.T) {
	r := &http.Request{RemoteAddr: "10.1.2.3:80", Header: http.Header{
		"Forwarded": {"for=6.6.6.6"}, "X-Forwarded-For": {"7.7.7.7"},
	}}
	require.Equal(t, "ip:7.7.7.7", keyOf(TrustedProxies(proxies...), r))
	require.Equal(t, "ip:6.6.6.6", keyOf(TrustedForwarders(proxies...), r))
}

func TestTrustedRefuses(t *testing.T) {
	for _, cidrs := range [][]string{
		nil, {""}, {"10.0.0.0/33"}, {"10.0.0"}, {"localhost"}, {"10.0.0.0/8", "x"}, {"fe80::1%eth0"},
		{"0.0.0.0/0"}, {"::/0"}, {"::ffff:0:0/96"}, {"::ffff:0:0/90"}, {"10.0.0.1:80"},
	} {
		require.Error(t, TrustedProxies(cidrs...).err, "%v", cidrs)
		require.Error(t, TrustedForwarders(cidrs...).err, "%v", cidrs)
	}
	link := &http.Request{RemoteAddr: "[fe80::9%eth0]:80", Header: http.Header{"X-Forwarded-For": {"192.0.2.1"}}}
	require.Equal(t, "ip:192.0.2.1", keyOf(TrustedProxies("fe80::9"), link), "a proxy on this link, whatever the zone")
	for _, cidr := range []string{"10.9.9.9/8", "::ffff:10.0.0.0/104", "::ffff:10.1.2.3", "10.1.2.3"} {
		k := TrustedProxies(cidr)
		require.NoError(t, k.err, cidr)
		r := &http.Request{RemoteAddr: "10.1.2.3:80", Header: http.Header{"X-Forwarded-For": {"192.0.2.1"}}}
		require.Equal(t, "ip:192.0.2.1", keyOf(k, r), cidr)
	}
}

func FuzzAddress(f *testing.F) {
	f.Add(`for="[::1]:80", for=1.2.3.4`)
	f.Fuzz(func(t *testing.T, s string) {
		for _, k := range []struct {
			Key
			header, own string
		}{{TrustedProxies(proxies...), "X-Forwarded-For", "192.0.2.1"}, {TrustedForwarders(proxies...), "Forwarded", "for=192.0.2.1"},
			{TrustedForwarders(proxies...), "Forwarded", `proto=https;for="192.0.2.1:80"`}} {
			// Whatever a client sends, the proxy appends the client's address.
			r := &http.Request{RemoteAddr: "10.0.0.1:80", Header: http.Header{k.header: {s + ", " + k.own}}}
			require.Equal(t, "ip:192.0.2.1", keyOf(k.Key, r))
			r.Header[k.header] = []string{s, k.own}
			require.Equal(t, "ip:192.0.2.1", keyOf(k.Key, r))
		}
	})
}
