package headgate

import "strings"

// Key joins parts to one key, as Key("user", id, "search"), so that no two
// lists of parts make the same one. A ':' or '%' within a part is written
// %3A or %25. No parts, and one empty part, make the empty key, which every
// limiter refuses. Key("user", "") is "user:", which is not empty.
func Key(parts ...string) string {
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
