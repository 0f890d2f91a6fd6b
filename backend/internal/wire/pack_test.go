package wire

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// asked returns a group of n calls.
func asked(n int, policies []backend.Policy) *Group {
	g := &Group{Policies: policies}
	for range n {
		c := &Call{}
		c.Ask(&backend.Request{Group: backend.Group{Cost: 1, Policies: policies}}, 0)
		g.Calls = append(g.Calls, c)
	}
	return g
}

// TestWhatAsksAlikeIsOneSection: a batch has a section for each list of
// policies, op and number of takes, in whatever order they came.
func TestWhatAsksAlikeIsOneSection(t *testing.T) {
	policy := backend.Policy{Name: "p", Algorithm: algo.TokenBucket(algo.PerSecond(1), 1)}
	other := policy
	other.Name = "q"
	lists := [][]backend.Policy{{policy}, {other}}
	var groups []*Group
	for _, list := range lists {
		for _, takes := range []int{1, 1, 1, 1, 2, 2, 7} {
			for _, op := range []backend.Op{backend.Take, backend.Peek} {
				g := asked(takes, list)
				g.Op = op
				groups = append(groups, g)
			}
		}
	}
	rand.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
	Sort(groups)
	const header, each, run = 12, 41, 16
	b := pack(nil, 0, groups)
	var sections []int
	for ; len(b) > 0; b = b[header+each+run:] {
		sections = append(sections, int(binary.LittleEndian.Uint16(b)))
	}
	require.Equal(t, []int{4, 2, 1, 4, 2, 1, 4, 2, 1, 4, 2, 1}, sections)
}

// TestBorrowNamesItsKeys: the hash, the borrower's record and each log, also of a Borrow whose
// caller has left. The script takes the keys of the next group from behind these.
func TestBorrowNamesItsKeys(t *testing.T) {
	for _, gone := range []bool{false, true} {
		g := asked(1, []backend.Policy{{Name: "p", Algorithm: algo.SlidingLog(algo.PerSecond(1))}})
		g.Op, g.Tag, g.Withdrawn = backend.Borrow, "k", gone
		a := Args{Groups: []*Group{g}}
		all := a.Set("sha", "", 0, "")
		require.Equal(t, 3, *all[2].(*int))
		var keys []string
		for _, k := range all[3:6] {
			keys = append(keys, string(*k.(*blob)))
		}
		require.Equal(t, []string{"{k}", "{k}:b:" + string(make([]byte, 16)), "{k}:log:1s/p"}, keys)
	}
}
