package nodes

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParse: the user, the password and TLS of one URL are those of all nodes.
func TestParse(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"a:1":                                  "[a:1]   false",
		"a:1,b:2":                              "[a:1 b:2]   false",
		"redis://u:p@a:1,b:2":                  "[a:1 b:2] u p false",
		"redis://u:p@a:1,redis://b:2":          "[a:1 b:2] u p false",
		"redis://a:1,rediss://:p@b:2":          "[a:1 b:2]  p true",
		"rediss://a:1,b:2":                     "[a:1 b:2]   true",
		"a:1,redis://u:p@b:2,redis://u:p@c:3":  "[a:1 b:2 c:3] u p false",
		"redis://u:p,q@a:1,b:2,rediss://c:3":   "[a:1 b:2 c:3] u p,q true",
		"redis://u:p@a:1?addr=b:2,rediss://c":  "[a:1 b:2 c:6379] u p true",
		"redis://:p%25@[::1]:1,redis://:p%25@": "[[::1]:1 localhost:6379]  p% false",
	} {
		o, err := Parse(list)
		require.NoError(t, err, list)
		require.Equal(t, want, fmt.Sprint(o.Addrs, " ", o.Username, " ", o.Password, " ", o.TLSConfig != nil), list)
	}
	for list, want := range map[string]error{
		"http://a": ErrList, "a:1,http://u:s3cr@b": ErrList, "redis://u:s3cr%t@a": ErrList,
		"redis://u:s3cr@a,redis://u:s3cr2@b": ErrLogins, "redis://u:s3cr@a,redis://v:s3cr@b": ErrLogins,
	} {
		_, err := Parse(list)
		require.ErrorIs(t, err, want, list)
		require.NotContains(t, err.Error(), "s3cr")
	}
}
