package record

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/internal/lab/golden"
	"github.com/stretchr/testify/require"
)

// entries are of each sort, the first with as little as there can be, and the second with all.
type entries struct {
	counts    []Count
	leases    []Lease
	settled   []Settlement
	borrowers []Borrower
}

func some() entries {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		berlin = time.FixedZone("Europe/Berlin", 3600)
	}
	charges := []Charge{{ID: 3, Units: 1, Class: 2, Shared: true, Charge: rule.Charge{At: 1769860805123456, Total: 9}, Algorithm: rule.TokenBucket(rule.PerMinute(600), 20)}}
	for _, a := range []rule.Algorithm{
		rule.FixedWindow(rule.PerDay(1 << 40)), rule.SlidingWindow(rule.PerSecond(3)), rule.BucketedWindow(rule.PerHour(10), 7), rule.SlidingLog(rule.PerMinute(5)),
		rule.CompactLog(rule.PerMinute(5)), rule.InFlight(4), rule.LeakyQueue(rule.PerSecond(10), 5, time.Second),
		rule.Calendar(100, rule.Day(), time.UTC), rule.Calendar(5, rule.Week(1), berlin), rule.Calendar(7, rule.Month(15), time.FixedZone("UTC+3", 3*3600)),
	} {
		charges = append(charges, Charge{ID: uint64(len(charges)), Units: 2, Spared: true, Charge: rule.Charge{At: -1}, Algorithm: a})
	}
	l := &rule.Lent{Epoch: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}, From: 5, Cur: 6, Prev: 7, Most: 8, MostUntil: 9, Ends: []rule.LentUntil{{End: 10, Due: 11, Units: 12}, {End: 13}}}
	return entries{
		[]Count{{}, {ID: 1 << 63, Until: 1769860805123456, Class: 65535, Words: []int64{1, 0, -3}, Lent: l}, {ID: 7, Many: true, Words: []int64{4, 5, 6, 0}}, {ID: 8, Many: true}},
		[]Lease{{}, {ID: [2]uint64{1, 2}, Key: 3, End: 1769860805123456, Length: 60_000, Late: true, Reset: true, Charges: charges}},
		[]Settlement{{}, {ID: [2]uint64{1 << 63, 2}, Attempt: [2]int64{-1, 5}, Until: 1769860805123456}},
		[]Borrower{{}, {ID: [2]uint64{3, 4}, Seq: 1 << 31, Loan: 7, Counted: 8, Until: 9, Of: []LentTo{{End: 1, Units: 2, Epoch: [8]byte{9}}, {}}}},
	}
}

func (e entries) text() []byte {
	b := Begin(nil)
	for i := range e.counts {
		b = AppendCount(b, &e.counts[i])
	}
	for i := range e.leases {
		b = AppendLease(b, &e.leases[i])
	}
	for i := range e.settled {
		b = AppendSettlement(b, &e.settled[i])
	}
	for i := range e.borrowers {
		b = AppendBorrower(b, &e.borrowers[i])
	}
	return Seal(b, 0)
}

// read reads as many entries as e has.
func (e entries) read(r *Reader) (got entries) {
	for range e.counts {
		var c Count
		r.Count(&c)
		got.counts = append(got.counts, c)
	}
	for range e.leases {
		var l Lease
		r.Lease(&l)
		got.leases = append(got.leases, l)
	}
	for range e.settled {
		var s Settlement
		r.Settlement(&s)
		got.settled = append(got.settled, s)
	}
	for range e.borrowers {
		var w Borrower
		r.Borrower(&w)
		got.borrowers = append(got.borrowers, w)
	}
	return got
}

// TestReads: what was written is read, but for the zeros behind few words.
func TestReads(t *testing.T) {
	e := some()
	r, err := Open(e.text())
	require.NoError(t, err)
	got := e.read(r)
	require.NoError(t, r.Err())
	require.False(t, r.More())
	for i := range e.counts {
		for j, w := range got.counts[i].Words {
			require.Equal(t, e.counts[i].Words[j], w)
		}
		e.counts[i].Words, got.counts[i].Words = nil, nil
	}
	require.Equal(t, e.counts, got.counts)
	require.Equal(t, e.settled, got.settled)
	require.Equal(t, e.borrowers, got.borrowers)
	for i, c := range e.leases[1].Charges {
		a := &got.leases[1].Charges[i].Algorithm
		require.True(t, a.Equal(&c.Algorithm), "%v is %v", c.Algorithm.String(), a.String())
		require.Equal(t, c.Algorithm.Hash(), a.Hash())
		now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
		_, period, x, y, fill := c.Algorithm.Numbers(now)
		_, period2, x2, y2, fill2 := a.Numbers(now)
		require.Equal(t, [4]int64{period, x, y, fill}, [4]int64{period2, x2, y2, fill2}, a.String())
		e.leases[1].Charges[i].Algorithm, *a = rule.Algorithm{}, rule.Algorithm{}
	}
	require.Equal(t, e.leases, got.leases)
}

// TestOwners: numbers and texts of the owner's stand among entries.
func TestOwners(t *testing.T) {
	b := AppendText(AppendNumber(AppendText(Begin(nil), "a class"), -7), "")
	r, err := Open(Seal(append([]byte("before"), b...), 6)[6:])
	require.NoError(t, err)
	require.Equal(t, "a class", r.Text())
	require.Equal(t, int64(-7), r.Number())
	require.Equal(t, "", r.Text())
	require.False(t, r.More())
	require.NoError(t, r.Err())
	require.Zero(t, r.Number())
	require.Zero(t, r.Text())
	require.ErrorIs(t, r.Err(), ErrGarbled)
}

// TestGarbled: of a text with a byte changed, or cut, nothing is read.
func TestGarbled(t *testing.T) {
	text := some().text()
	for i := range text {
		changed := append([]byte{}, text...)
		changed[i] ^= byte(1 + rand.IntN(255))
		_, err := Open(changed)
		require.ErrorIs(t, err, ErrGarbled)
		_, err = Open(text[:i])
		require.ErrorIs(t, err, ErrGarbled)
	}
}

// TestOthers: what has a right checksum and no entries is an error, and never a panic.
func TestOthers(t *testing.T) {
	e := some()
	whole := e.text()
	for range 20_000 {
		text := slices.Clone(whole)
		text = text[:len(text)-checksum]
		text[1+rand.IntN(len(text)-1)] ^= byte(1 + rand.IntN(255))
		if rand.IntN(2) == 0 {
			text = text[:1+rand.IntN(len(text))]
		}
		r, err := Open(Seal(text, 0))
		require.NoError(t, err)
		for _, l := range e.read(r).leases {
			for i := range l.Charges {
				require.NoError(t, l.Charges[i].Algorithm.Check())
			}
		}
		if r.Err() != nil {
			require.ErrorIs(t, r.Err(), ErrGarbled)
			require.False(t, r.More())
		}
	}
	r, err := Open(Seal([]byte{Version, 1 << 7}, 0))
	require.NoError(t, err)
	r.Count(&Count{})
	require.ErrorIs(t, r.Err(), ErrGarbled)
}

// TestUnknownFlag: a flag that a later release has set is not passed over.
func TestUnknownFlag(t *testing.T) {
	text := AppendSettlement(Begin(nil), &Settlement{Until: 1})
	text[1] = 1 << 7
	r, err := Open(Seal(text, 0))
	require.NoError(t, err)
	r.Settlement(&Settlement{})
	require.ErrorIs(t, r.Err(), ErrGarbled)
}

// TestUnsoundAlgorithm: an algorithm that Check refuses is none of a lease.
func TestUnsoundAlgorithm(t *testing.T) {
	text := AppendLease(Begin(nil), &Lease{Charges: []Charge{{Algorithm: rule.FixedWindow(rule.PerMinute(0))}}})
	r, err := Open(Seal(text, 0))
	require.NoError(t, err)
	r.Lease(&Lease{})
	require.ErrorIs(t, r.Err(), ErrGarbled)
}

// TestLaterVersion is one that names itself, which no earlier release reads.
func TestLaterVersion(t *testing.T) {
	for _, v := range []byte{Version + 1, 255} {
		_, err := Open(Seal([]byte{v, 1, 2, 3}, 0))
		var later *LaterError
		require.ErrorAs(t, err, &later)
		require.Equal(t, int(v), later.Version)
	}
	_, err := Open(Seal([]byte{0, 1}, 0))
	require.ErrorIs(t, err, ErrGarbled)
}

// TestGolden: the bytes of each entry.
func TestGolden(t *testing.T) {
	e := some()
	var b strings.Builder
	b.WriteString("# The entries of a record, without the version before them and the checksum behind. The codec has the layout.\n")
	line := func(what string, text []byte) { fmt.Fprintf(&b, "%s %s\n", what, hex.EncodeToString(text)) }
	for i := range e.counts {
		line("count", AppendCount(nil, &e.counts[i]))
	}
	for i := range e.leases {
		line("lease", AppendLease(nil, &e.leases[i]))
	}
	for i := range e.settled {
		line("settlement", AppendSettlement(nil, &e.settled[i]))
	}
	for i := range e.borrowers {
		line("borrower", AppendBorrower(nil, &e.borrowers[i]))
	}
	line("text", Seal(AppendCount(Begin(nil), &e.counts[1]), 0))
	golden.Equal(t, "record.golden", b.String())
}
