// Package unknown finds the fields of a message that its generated code does not have: those
// of a newer version of the protocol.
package unknown

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Report receives a message's name, the number of a field that it does not have, and how
// often that field stands.
type Report func(message protoreflect.FullName, field protowire.Number, times int)

// maxReports is the number of different fields that All reports of one message: a client may
// send any number of them.
const maxReports = 32

// Has reports whether a message has such a field, whatever the messages in it have. It
// allocates nothing.
func Has(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }

// field is a field that a message does not have.
type field struct {
	message protoreflect.FullName
	number  protowire.Number
}

// counts are how often each of the first maxReports different fields stands.
type counts map[field]int

func (c counts) add(f field) {
	//mutant:reports-bounded
	if c[f] > 0 || len(c) < maxReports {
		c[f]++
	}
}

// All reports the fields of a message and of all messages in it, each once, the first
// maxReports of them.
func All(m protoreflect.Message, report Report) {
	c := counts{}
	c.all(m)
	for f, times := range c {
		report(f.message, f.number, times)
	}
}

func (c counts) all(m protoreflect.Message) {
	c.each(m.Descriptor().FullName(), m.GetUnknown())
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap() && f.MapValue().Message() == nil:
		case f.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				c.all(v.Message())
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				c.all(v.List().Get(i).Message())
			}
		default:
			c.all(v.Message())
		}
		return true
	})
}

func (c counts) each(message protoreflect.FullName, b []byte) {
	for len(b) > 0 {
		number, _, n := protowire.ConsumeField(b)
		if n < 0 {
			return
		}
		c.add(field{message, number})
		b = b[n:]
	}
}
