package rls_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// manyDescriptors has n descriptors of few counts. Every second one names limits that it replaces.
func manyDescriptors(n int) *pb.RateLimitRequest {
	req := &pb.RateLimitRequest{Domain: "d"}
	for i := range n {
		key := []string{"many", "named"}[i%2]
		req.Descriptors = append(req.Descriptors, &common.RateLimitDescriptor{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: "v"}}})
	}
	return req
}

// TestMostDescriptors sends as many descriptors as a request may have, and one more.
func TestMostDescriptors(t *testing.T) {
	const most = 1024
	s, c := service(t, nil, func(o *rls.Options) { o.Metadata, o.Headers.Draft = true, true })
	n, err := strconv.Atoi(os.Getenv("HEADGATED_TEST_DESCRIPTORS")) // by TestWorkIsLinear
	if err != nil {
		n = most
	}
	resp, err := s.ShouldRateLimit(ctx, manyDescriptors(n))
	require.NoError(t, err)
	require.Len(t, resp.Statuses, n)
	_, err = s.ShouldRateLimit(ctx, manyDescriptors(most+1))
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "1025 descriptors")
	require.Equal(t, map[rls.Outcome]int{rls.OK: 1, rls.Invalid: 1}, c.requests)
}

// TestWorkIsLinear counts how often each block of the code runs for a request: four times
// the descriptors are at most some four times the blocks.
func TestWorkIsLinear(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "rls.test")
	out, err := exec.Command("go", "test", "-c", "-o", bin, "-covermode=count", "-coverpkg=.,../limits", ".").CombinedOutput()
	require.NoError(t, err, string(out))
	few, many := blocks(t, bin, 256), blocks(t, bin, 1024)
	t.Logf("%d blocks for 256 descriptors, %d for 1,024", few, many)
	require.Greater(t, few, 256)
	require.Less(t, many, 5*few)
}

// blocks returns how many blocks of the service and of the limits ran for a request of n descriptors.
func blocks(t testing.TB, bin string, n int) (total int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cover")
	cmd := exec.Command(bin, "-test.run=^TestMostDescriptors$", "-test.coverprofile="+file)
	cmd.Env = append(os.Environ(), fmt.Sprint("HEADGATED_TEST_DESCRIPTORS=", n))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text()) // file:range statements count
		if len(words) == 3 {
			ran, err := strconv.Atoi(words[2])
			require.NoError(t, err)
			total += ran
		}
	}
	return total
}
