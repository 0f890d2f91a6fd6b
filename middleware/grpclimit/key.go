package grpclimit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/middleware/internal/address"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// RPC is what an interceptor has of a call beside its context. It can grow.
type RPC struct {
	FullMethod string // as "/package.Service/Method"
	Target     string // on a client what it dials, as "dns:///host:443"; empty on a server
	Stream     bool
	Request    any // the request of a unary call; nil for a stream
	// Unregistered is whether the server has no such method, so that the caller
	// chose the name freely: the call is for grpc.UnknownServiceHandler. It is
	// also set for the streams of a service that was registered without an
	// implementation.
	Unregistered bool
}

// Key says whose count an RPC is charged to. Make one with PeerAddress, FullMethod, Metadata,
// Authorization, FromHTTP or Func. The zero Key is refused by New and NewClient. A Key is safe
// for concurrent use.
//
// A key must not be something that callers can choose freely, or each call gets
// a limit of its own.
type Key struct {
	of  func(ctx context.Context, rpc RPC) (headgate.Call, error)
	err error
}

// Func is the call that f returns: the key, and optionally a cost per policy. An error refuses
// the RPC. One with a gRPC status is returned as it is, and one of a context is
// DEADLINE_EXCEEDED or CANCELED. Any other error that is not a limiter's is INTERNAL, without
// its text. The limiter's Logger gets the text, at most once per second. f is called
// concurrently.
func Func(f func(ctx context.Context, rpc RPC) (headgate.Call, error)) Key {
	if f == nil {
		return invalid("key", "nil", "a function")
	}
	return Key{of: f}
}

// Of returns the text of a call's key, for a part of NewAll or a call inside of a handler. It is
// "" where the call has none.
func (k Key) Of(ctx context.Context, rpc RPC) (string, error) {
	switch {
	case k.err != nil:
		return "", k.err
	case k.of == nil:
		return "", invalid("key", "Key{}", "one made by a function of package grpclimit, as PeerAddress").err
	}
	call, err := k.of(ctx, rpc)
	return call.Key, err
}

// invalid is a key that New refuses.
func invalid(what string, value any, want string) Key {
	return Key{err: &headgate.InvalidError{What: what, Value: value, Want: want}}
}

// FullMethod counts by the method: all callers of a method share its limit. All
// methods that are not registered share one, so that random names neither make
// keys nor escape the limit. A key is "method:/package.Service/Method".
func FullMethod() Key { return Key{of: fullMethod} }

func fullMethod(_ context.Context, rpc RPC) (headgate.Call, error) {
	if rpc.Unregistered {
		return headgate.Call{Key: headgate.Key("method", "unregistered")}, nil // a method's name begins with /
	}
	return headgate.Call{Key: headgate.Key("method", rpc.FullMethod)}, nil
}

// PeerAddress counts by the address that the connection comes from. IPv4 counts
// by the address, IPv6 by its /64, since a client gets at least that much. It
// is empty for a peer without an IP address, as on a Unix socket, and on a
// client. A key is "ip:203.0.113.7" or "ip:2001:db8:1:2::/64", as that of
// httplimit.RemoteAddr, so a client has one count for both protocols.
//
// An IPv6 address that stands for an IPv4 address counts as that: of
// ::ffff:0:0/96 (mapped) and of 64:ff9b::/96 (NAT64). Other prefixes of
// translators count as any /64, so clients may share one: use a function where
// a network has its own.
//
// Behind a proxy it is the proxy's address: use FromHTTP with httplimit.TrustedProxies.
func PeerAddress() Key { return Key{of: peerAddress} }

func peerAddress(ctx context.Context, _ RPC) (headgate.Call, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return headgate.Call{}, nil
	}
	addr := addressOf(p.Addr)
	if !addr.IsValid() {
		return headgate.Call{}, nil
	}
	return headgate.Call{Key: string(address.AppendKey(nil, address.Plain(addr), address.Prefix))}, nil
}

// addressOf returns the IP address of a, and the zero Addr where it has none.
func addressOf(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case nil:
		return netip.Addr{}
	case *net.TCPAddr:
		return a.AddrPort().Addr()
	}
	ap, _ := netip.ParseAddrPort(a.String())
	return ap.Addr()
}

// Metadata counts by the SHA-256 of the value of name, as "x-api-key", so that
// no secret is stored. A server reads the incoming metadata, a client the
// outgoing. It is empty where the value is missing or empty. Several values
// refuse the call with INVALID_ARGUMENT: which of them another reader takes is
// unknown. A key is "metadata:x-api-key:2bb80d537b1da3e38bd30361aa855686".
//
// Only a value that something else verifies is safe to count by. New refuses
// what is no name of metadata, and host. It refuses
// x-forwarded-for and forwarded too, which any client can send, and authorization: use
// Authorization.
func Metadata(name string) Key {
	name = strings.ToLower(name)
	switch {
	case name == "", strings.HasPrefix(name, "grpc-"), strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "":
		return invalid("metadata of a key", name, "a name of metadata")
	case name == "x-forwarded-for", name == "forwarded", name == "host":
		return invalid("metadata of a key", name, "what a client can't send, such as FromHTTP with httplimit.TrustedProxies")
	case name == "authorization":
		return invalid("metadata of a key", name, "grpclimit.Authorization()")
	}
	return Key{of: func(ctx context.Context, rpc RPC) (headgate.Call, error) {
		value, err := valueOf(ctx, rpc, name)
		if err != nil || value == "" {
			return headgate.Call{}, err
		}
		return headgate.Call{Key: headgate.Key("metadata", name, hash(value))}, nil
	}}
}

// Authorization counts by the credentials in the metadata "authorization", as Metadata
// does. The spellings of one value have one key: the scheme counts in lower case, and
// one space follows it. Credentials of the scheme Basic count by the decoded user and
// password. A token of another scheme counts as it is: authenticate first, since a lenient
// reader may accept several spellings of it. A key is
// "authorization:2bb80d537b1da3e38bd30361aa855686", and the same as that of
// httplimit.Authorization.
func Authorization() Key { return Key{of: authorization} }

func authorization(ctx context.Context, rpc RPC) (headgate.Call, error) {
	value, err := valueOf(ctx, rpc, "authorization")
	if value = address.Credentials(value); err != nil || value == "" {
		return headgate.Call{}, err
	}
	return headgate.Call{Key: headgate.Key("authorization", hash(value))}, nil
}

// hash is of 128 bits, which is too many to find two values of one hash.
func hash(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:16])
}

// valueOf returns the one value of name, "" where there is none.
func valueOf(ctx context.Context, rpc RPC, name string) (string, error) {
	switch values := valuesOf(ctx, rpc, name); len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", status.Errorf(codes.InvalidArgument, "metadata %s has several values", name)
}

// valuesOf tells a client's call by its Target, which a server's call does not
// have.
func valuesOf(ctx context.Context, rpc RPC, name string) []string {
	if rpc.Target == "" {
		return metadata.ValueFromIncomingContext(ctx, name)
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	return md.Get(name)
}
