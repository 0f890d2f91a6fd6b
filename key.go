package headgate

import (
	"slices"
	"strings"
)

// Key joins parts to one key, as Key("user", id, "search"), so that no two
// lists of parts make the same one. A ':' or '%' within a part is written
// %3A or %25. No parts, and a list with an empty part, make the empty key, which
// every limiter refuses and middleware answers with 400. So all users without an
// id do not share a count.
func Key(parts ...string) string {
	//mutant:empty-part-refused
	if slices.Contains(parts, "") {
		return ""
	}
	if len(parts) == 1 {
		return escape.Replace(parts[0])
	}
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteByte(':')
		}
		_, _ = escape.WriteString(&b, p)
	}
	return b.String()
}

var escape = strings.NewReplacer("%", "%25", ":", "%3A")
