package address

import (
	"encoding/base64"
	"strings"
)

// Credentials returns the value of Authorization in the one form that all its spellings
// have. That is the scheme in lower case, one space, and the token. The scheme
// is not case-sensitive, and servers accept several spaces (RFC 9110, section 11.4). The
// token of Basic is base64 in its strict form. That of another scheme is as it is. The
// result is "" if there is neither.
func Credentials(value string) string {
	value = strings.Trim(value, " \t")
	i := strings.IndexAny(value, " \t")
	if i < 0 {
		return value
	}
	scheme, token := strings.ToLower(value[:i]), strings.TrimLeft(value[i:], " \t")
	if scheme == "basic" {
		token = strict(token)
	}
	return scheme + " " + token
}

// strict returns base64 with padding, and with zeros in the bits that belong to no byte.
// Readers such as http.Request.BasicAuth ignore these bits. Some need no padding, or take
// the URL alphabet. Other text stays as it is.
func strict(token string) string {
	decoded, err := base64.RawStdEncoding.DecodeString(standard.Replace(strings.TrimRight(token, "=")))
	if err != nil {
		return token
	}
	return base64.StdEncoding.EncodeToString(decoded)
}

// standard replaces the URL alphabet by the usual one.
var standard = strings.NewReplacer("-", "+", "_", "/")
