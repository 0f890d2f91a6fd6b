package rls_test

import (
	"testing"
	"unicode/utf8"

	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// What is UTF-8 stays, and two texts that differ stay different.
func TestText(t *testing.T) {
	seen := map[string]bool{}
	for _, text := range []string{"", "é", "\uFFFD", "\xff", "\xfe", "\xff\xfe", "\xc3", "\xc3\xa9\xc3", "a\x80b"} {
		got := string(rls.Text([]byte(text)))
		require.True(t, utf8.ValidString(got))
		require.Equal(t, utf8.ValidString(text), got == text, "%q", text)
		require.False(t, seen[got], "%q", text)
		seen[got] = true
	}
}

// FuzzUnmarshal: what Protocol Buffers accept is read the same, and nothing panics.
func FuzzUnmarshal(f *testing.F) {
	for _, req := range []*pb.RateLimitRequest{full(), manyDescriptors(3)} {
		b, err := proto.Marshal(req)
		require.NoError(f, err)
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		want, got := new(pb.RateLimitRequest), new(pb.RateLimitRequest)
		if err := proto.Unmarshal(b, want); err == nil {
			require.NoError(t, rls.Unmarshal(b, got))
			require.True(t, proto.Equal(want, got))
		}
		_ = rls.Unmarshal(b, got)
	})
}
