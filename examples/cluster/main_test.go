package main

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// output is what run has printed so far.
type output struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
	}
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.Buffer.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.Buffer.String()
}

var (
	served = regexp.MustCompile(`(?m)s store [1-9]\d*  fail_open 0  fail_closed 0  fail_local 0  deny_cache \d+  loan 0  none 0  errors 0`)
	modes  = regexp.MustCompile(`(?m)^total  store [1-9]\d*  fail_open [1-9]\d*  fail_closed [1-9]\d*  fail_local [1-9]\d*  deny_cache \d+  loan 0  none 0  errors 0`)
)

// TestPrimaryDies kills a primary under the calls: each is answered, its keys'
// by their failure modes, and in the end all of them by the store again.
func TestPrimaryDies(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster and waits for a failover: some 6 s")
	}
	c := redistest.StartCluster(t, redistest.Elections...)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out, ended := &output{}, make(chan error, 1)
	go func() { ended <- run(ctx, out, c.Addrs(), 200*time.Millisecond) }()
	shows := func(since int) {
		t.Helper()
		require.Eventually(t, func() bool { return served.MatchString(out.String()[since:]) }, 30*time.Second, 20*time.Millisecond)
	}
	shows(0)
	victim := c.Primary(0)
	victim.Kill()
	c.Promoted(t, 0, victim)
	shows(len(out.String()))
	cancel()
	require.NoError(t, <-ended)
	t.Log("\n" + out.String())
	require.Regexp(t, modes, out.String())
	require.Contains(t, out.String(), "circuit of "+victim.Addr()+": closed to open")
}

// TestNobodyThere: nobody listens on port 1, which is an error in the end,
// but none of any call's.
func TestNobodyThere(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	err := run(ctx, io.Discard, []string{"127.0.0.1:1"}, time.Second)
	require.ErrorContains(t, err, "the store decided nothing")
}
