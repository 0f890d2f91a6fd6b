// Package unknown finds the fields of a message that its generated code does not have: those
// of a newer version of the protocol.
package unknown

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Report receives a message's name and the number of a field that it does not have.
type Report func(message protoreflect.FullName, field protowire.Number)

// maxReports is the number of fields that All reports of one message: a client may send any
// number of them.
const maxReports = 32

// Has reports whether a message has such a field, whatever the messages in it have. It
// allocates nothing.
func Has(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }

// All reports the fields of a message and of all messages in it, the first maxReports of
// them. A field that stands several times is reported each time.
func All(m protoreflect.Message, report Report) {
	left := maxReports
	all(m, func(message protoreflect.FullName, field protowire.Number) {
		//mutant:reports-bounded
		if left--; left >= 0 {
			report(message, field)
		}
	})
}

func all(m protoreflect.Message, report Report) {
	each(m.Descriptor().FullName(), m.GetUnknown(), report)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap() && f.MapValue().Message() == nil:
		case f.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				all(v.Message(), report)
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				all(v.List().Get(i).Message(), report)
			}
		default:
			all(v.Message(), report)
		}
		return true
	})
}

func each(message protoreflect.FullName, b []byte, report Report) {
	for len(b) > 0 {
		field, _, n := protowire.ConsumeField(b)
		if n < 0 {
			return
		}
		report(message, field)
		b = b[n:]
	}
}
