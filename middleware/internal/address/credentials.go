package address

import "strings"

// Credentials returns the value of Authorization in the one form that all its spellings
// have. That is the scheme in lower case, one space, and the token as it is. The scheme
// is not case-sensitive, and servers accept several spaces (RFC 9110, section 11.4). It
// is "" if there is neither.
func Credentials(value string) string {
	value = strings.Trim(value, " \t")
	i := strings.IndexAny(value, " \t")
	if i < 0 {
		return value
	}
	return strings.ToLower(value[:i]) + " " + strings.TrimLeft(value[i:], " \t")
}
