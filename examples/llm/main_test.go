package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

func Example() {
	if err := run(context.Background(), os.Stdout, ""); err != nil {
		fmt.Println(err)
	}
	// Output:
	// call                                     answer                    tenant  tokens  running  org   tokens  running
	// a reply begins, of at most 1,000 tokens                            web     1050    1        acme  1050    1
	// it ends after 250                        passes                    web     300     0        acme  300     0
	// a client leaves after 100 tokens         passes                    web     450     0        acme  450     0
	// a third call while two run               denied by running of web  web     650     0        acme  650     0
	// a reply of at most 3,900 tokens          denied by tokens of acme  batch   0       0        acme  650     0
	// a process dies in a call                 passes                    web     1700    1        acme  1700    1
	// its lease of 1 s has ended                                         web     1700    0        acme  1700    0
}

// TestOnAServer: the same calls have the same answers and counts on a real server.
func TestOnAServer(t *testing.T) {
	redis := redistest.Shared(t)
	want, got := new(bytes.Buffer), new(bytes.Buffer)
	require.NoError(t, run(t.Context(), want, ""))
	for range 3 { // a machine that stalls for a second ends the lease of 1 s early
		got.Reset()
		require.NoError(t, run(t.Context(), got, "redis://"+redis.Addr()))
		if got.String() == want.String() {
			break
		}
	}
	require.Equal(t, want.String(), got.String())
	redis.NoImmortals(t)
}

// TestPanic: a reply that panics is charged what it has made, and its slots are free.
func TestPanic(t *testing.T) {
	g, err := newGateway(memory.New(nil), time.Minute)
	require.NoError(t, err)
	c := call{"tenant:web", "org:acme", 50, 1000}
	require.Panics(t, func() {
		_, _ = g.complete(t.Context(), c, words(20, 10, func() { panic("model") }), io.Discard)
	})
	states, err := peek(t.Context(), g.orgs, c.org)
	require.NoError(t, err)
	require.EqualValues(t, 60, states[1].Used)
	require.Zero(t, states[2].Used)
}

// TestStoreIsDown: no server listens on port 1, and no call passes uncounted.
func TestStoreIsDown(t *testing.T) {
	require.Error(t, run(t.Context(), io.Discard, "redis://127.0.0.1:1"))
}
