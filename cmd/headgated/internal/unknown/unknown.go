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

// Own reports the fields of a message, and none of the messages in it. It allocates nothing
// for a message that has none. A field that stands several times is reported each time.
func Own(m proto.Message, report Report) {
	//mutant:unknown-fields
	if b := m.ProtoReflect().GetUnknown(); len(b) > 0 {
		each(m.ProtoReflect().Descriptor().FullName(), b, report)
	}
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

// All reports the fields of a message and of all messages in it.
func All(m protoreflect.Message, report Report) {
	Own(m.Interface(), report)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap() && f.MapValue().Message() == nil:
		case f.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				All(v.Message(), report)
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				All(v.List().Get(i).Message(), report)
			}
		default:
			All(v.Message(), report)
		}
		return true
	})
}
