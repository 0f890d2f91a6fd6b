package main

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPicture: the picture of docs is what the program draws.
func TestPicture(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, run(&b))
	want, err := os.ReadFile("../../docs/algorithms.svg")
	require.NoError(t, err)
	require.Equal(t, string(want), b.String(), "go run ./examples/algorithms > docs/algorithms.svg")
}

// TestRows: what docs/algorithms.md says of the picture.
func TestRows(t *testing.T) {
	rows, err := decideAll(context.Background())
	require.NoError(t, err)
	for _, r := range rows {
		t.Logf("%-24s %d passed, at most %d in 24 hours", r.name, r.total, r.densest)
	}
	for i, exact := range []bool{false, false, false, true, true, false, false} {
		if exact {
			require.LessOrEqual(t, rows[i].densest, limit, rows[i].name)
		}
	}
}
