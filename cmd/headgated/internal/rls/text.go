package rls

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// Unmarshal reads a request whose texts may be any bytes. A proxy passes on what a client sends
// in a header, and a request that is refused for it would have no limit.
func Unmarshal(b []byte, req *rls.RateLimitRequest) error {
	return proto.Unmarshal(withText(b, req.ProtoReflect().Descriptor()), req)
}

// MaxMessages is the number of messages that the wire format of a request may have in it:
// descriptors, entries, overrides. An empty one takes two bytes there and some 90 in memory.
const MaxMessages = 1 << 17

// TooMany reports whether a request has more messages in it than it may have.
func TooMany(b []byte) bool {
	return messages(b, (*rls.RateLimitRequest)(nil).ProtoReflect().Descriptor()) > MaxMessages
}

// messages counts the messages in one.
func messages(b []byte, of protoreflect.MessageDescriptor) (n int) {
	for len(b) > 0 {
		number, kind, tag := protowire.ConsumeTag(b)
		length := protowire.ConsumeFieldValue(number, kind, b[max(tag, 0):])
		if tag < 0 || length < 0 {
			return n
		}
		if f := of.Fields().ByNumber(number); kind == protowire.BytesType && f != nil && f.Kind() == protoreflect.MessageKind {
			value, _ := protowire.ConsumeBytes(b[tag : tag+length])
			n += 1 + messages(value, f.Message())
		}
		b = b[tag+length:]
	}
	return n
}

// private is the first of 256 runes for private use. They stand for bytes that are no UTF-8, so
// that two values which differ have two counts.
const private = 0x10F000

// Text returns bytes as UTF-8. Those that are UTF-8 stay as they are.
func Text(b []byte) []byte {
	if utf8.Valid(b) {
		return b
	}
	var text []byte
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		//mutant:each-byte-a-rune
		if r == utf8.RuneError && n == 1 {
			r = private + rune(b[0])
		}
		text, b = utf8.AppendRune(text, r), b[n:]
	}
	return text
}

// withText returns a message whose strings are UTF-8. What is no message stays as it is.
func withText(b []byte, of protoreflect.MessageDescriptor) (all []byte) {
	for len(b) > 0 {
		number, kind, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return append(all, b...)
		}
		length := protowire.ConsumeFieldValue(number, kind, b[tag:])
		if length < 0 {
			return append(all, b...)
		}
		f, value := of.Fields().ByNumber(number), b[tag:tag+length]
		if kind == protowire.BytesType && f != nil {
			value, _ = protowire.ConsumeBytes(value)
			switch f.Kind() {
			case protoreflect.StringKind:
				value = Text(value)
			case protoreflect.MessageKind:
				value = withText(value, f.Message())
			}
			value = protowire.AppendBytes(nil, value)
		}
		all, b = append(append(all, b[:tag]...), value...), b[tag+length:]
	}
	return all
}
