package memory

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	codec "github.com/headgate-go/headgate/backend/internal/record"
	"github.com/headgate-go/headgate/internal/lab/golden"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// at returns Options with a clock that shows an instant.
func at(now *time.Time, maxKeys int) *Options {
	return &Options{MaxKeys: maxKeys, Now: func() time.Time { return *now }}
}

// all are policies of each kind, a shadow, and two classes.
func allKinds() (list []backend.Policy) {
	for _, k := range rule.Kinds() {
		list = append(list, by(k.String(), k.Random(algo.PerHour(100), func(least, most int64) int64 { return min(max(least, 10), most) })))
	}
	list = append(list, by("slots", algo.InFlight(50)), by("shadow", algo.FixedWindow(algo.PerDay(3))))
	list[len(list)-1].Shadow = true
	list[0].Class, list[1].Class = "per address", "per user"
	return list
}

// fill makes requests of each sort. It returns the groups by which all that is kept is seen.
func fill(t *testing.T, s *Store, keys int) (groups []backend.Group) {
	t.Helper()
	list := allKinds()
	for i := range keys {
		g := backend.Group{Key: fmt.Sprint("key", i), Policies: list, Cost: 1}
		if i%5 == 4 {
			g.Sub = "sub"
		}
		groups = append(groups, g)
		var id backend.LeaseID
		_, _ = rand.Read(id[:])
		g.Lease = &backend.Lease{ID: id, Length: time.Minute, Late: i%2 == 0}
		if ask(t, s, backend.Reserve, g).Allowed && i%3 == 0 {
			ask(t, s, backend.Settle, g)
		}
		lends := backend.Group{Key: g.Key, Sub: g.Sub, Policies: list[:1], Cost: 1}
		loan := &backend.Loan{ID: id, Seq: 1, Term: time.Second, Want: 4}
		require.NoError(t, s.Do(context.Background(), &backend.Request{Op: backend.Borrow, Group: lends, Loan: loan}, new(backend.Decision)))
	}
	return groups
}

// states returns what a store answers of each group.
func states(t *testing.T, s *Store, groups []backend.Group) (all []backend.State) {
	t.Helper()
	for _, g := range groups {
		g.Each = make([]backend.State, len(g.Policies))
		ask(t, s, backend.Peek, g)
		all = append(all, g.Each...)
	}
	return all
}

func saved(t testing.TB, s *Store) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, s.Save(&b))
	return b.Bytes()
}

// TestLoadsWhatWasSaved, into a store of another size, which then is sound and saves the same.
func TestLoadsWhatWasSaved(t *testing.T) {
	now := time.UnixMicro(1_745_000_145_000_000)
	for _, sizes := range [][2]int{{10_000, 10_000}, {10_000, 100}, {10_000, 1_000_000}, {60, 60}} {
		s := New(at(&now, sizes[0]))
		groups := fill(t, s, 200)
		text := saved(t, s)
		into := New(at(&now, sizes[1]))
		require.NoError(t, into.Load(bytes.NewReader(text)))
		sound(t, into)
		require.Equal(t, s.Len(), into.Len())
		if sizes[0] == sizes[1] {
			require.Equal(t, len(text), len(saved(t, into)))
		}
		if sizes[0] == 60 { // which counts in the overflow
			require.Equal(t, s.overflow.mu.records.live, into.overflow.mu.records.live)
			require.Positive(t, into.overflow.mu.records.live)
			continue // a Peek finds room for its key after a sweep
		}
		got := states(t, into, groups)
		for i, want := range states(t, s, groups) {
			require.Equal(t, want, got[i])
		}
		sound(t, into)
	}
}

// TestLoadComesFirst: a store that has had a request takes no other counts.
func TestLoadComesFirst(t *testing.T) {
	now := time.UnixMicro(1_745_000_145_000_000)
	s := New(at(&now, 0))
	groups := fill(t, s, 10)
	text, into := saved(t, s), New(at(&now, 0))
	ask(t, into, backend.Peek, groups[0])
	var invalid *backend.InvalidError
	require.ErrorAs(t, into.Load(bytes.NewReader(text)), &invalid)
	require.Zero(t, into.Len())
}

// TestGarbledByte: of a snapshot with one byte changed nothing is loaded, wherever that is.
func TestGarbledByte(t *testing.T) {
	redistest.Plain(t)
	now := time.UnixMicro(1_745_000_145_000_000)
	s := New(at(&now, 100))
	fill(t, s, 40)
	text := saved(t, s)
	require.Greater(t, len(text), 10_000)
	for i := range text {
		if i%(len(text)/10_000+1) != 0 && !redistest.Long() {
			continue
		}
		changed := bytes.Clone(text)
		changed[i] ^= byte(1 + mathrand.IntN(255))
		refused(t, changed, &now, map[bool]Fault{true: Foreign, false: Garbled}[i < len(magic)])
		refused(t, text[:i], &now, Cut)
	}
	refused(t, append(bytes.Clone(text), 0), &now, Garbled)
}

func refused(t *testing.T, text []byte, now *time.Time, faults ...Fault) {
	t.Helper()
	into := New(at(now, 100))
	err := into.Load(bytes.NewReader(text))
	var bad *SnapshotError
	require.ErrorAs(t, err, &bad)
	require.Contains(t, faults, bad.Fault, err.Error())
	require.Zero(t, into.Len())
}

// parts returns where each part of a snapshot begins, and its end.
func parts(text []byte) (at []int) {
	i := len(magic)
	for i < len(text) {
		at = append(at, i)
		i += lengthBytes + int(binary.LittleEndian.Uint64(text[i:]))
	}
	return append(at, i)
}

// TestPartsOfTwoSnapshots are whole, and no snapshot together.
func TestPartsOfTwoSnapshots(t *testing.T) {
	now := time.UnixMicro(1_745_000_145_000_000)
	s := New(at(&now, 1000))
	fill(t, s, 20)
	first := saved(t, s)
	now = now.Add(time.Millisecond)
	second := saved(t, s)
	a, b := parts(first), parts(second)
	require.Equal(t, len(a), len(b))
	for i := 1; i < len(a)-1; i++ {
		refused(t, append(bytes.Clone(first[:a[i]]), second[b[i]:]...), &now, Garbled)
		refused(t, append(bytes.Clone(first[:a[i]]), first[a[i+1]:]...), &now, Garbled, Cut)
	}
}

// TestLaterSnapshot is one of which a part has a version that this release does not know.
func TestLaterSnapshot(t *testing.T) {
	now := time.UnixMicro(1_745_000_145_000_000)
	text := saved(t, New(at(&now, 1000)))
	begin := parts(text)[1] // the first part of the store
	end := parts(text)[2]
	part := bytes.Clone(text[begin+lengthBytes : end-4])
	part[0] = codec.Version + 1
	later := append(bytes.Clone(text[:begin+lengthBytes]), codec.Seal(part, 0)...)
	refused(t, append(later, text[end:]...), &now, Later)
}

// TestSnapshotAhead: one that was written a day after now is refused, and one of an hour after
// now is loaded: a clock was set back.
func TestSnapshotAhead(t *testing.T) {
	now := time.UnixMicro(1_745_000_145_000_000)
	s := New(at(&now, 0))
	groups := fill(t, s, 10)
	text, before := saved(t, s), states(t, s, groups)
	now = now.Add(-25 * time.Hour)
	refused(t, text, &now, Ahead)
	now = now.Add(24 * time.Hour)
	into := New(at(&now, 0))
	require.NoError(t, into.Load(bytes.NewReader(text)))
	for i, state := range states(t, into, groups) {
		require.Equal(t, before[i].Policy, state.Policy)
	}
}

// TestTimeGoesOn: by the default clock, from the snapshot's instant or from now, whatever is
// later. So a lease ends at most as late as it would have.
func TestTimeGoesOn(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, -time.Second, time.Hour} {
		s := New(nil)
		s.clock.epoch += ahead.Microseconds()
		g := backend.Group{Key: "k", Policies: []backend.Policy{by("run", algo.InFlight(1))}, Cost: 1}
		g.Lease = &backend.Lease{ID: backend.LeaseID{1}, Length: 10 * time.Minute}
		require.True(t, ask(t, s, backend.Reserve, g).Allowed)
		into := New(nil)
		require.NoError(t, into.Load(bytes.NewReader(saved(t, s))))
		d := ask(t, into, backend.Peek, g)
		if ahead == -time.Hour { // an hour has passed since
			require.True(t, d.Allowed)
			continue
		}
		require.False(t, d.Allowed)
		require.LessOrEqual(t, d.RetryAfter, 10*time.Minute)
		require.Greater(t, d.RetryAfter, 9*time.Minute)
		sound(t, into)
	}
}

// TestEarlierRecordAfterLoad: a lease of a record that had left gives nothing back from a
// later record of the same count, also after a Load.
func TestEarlierRecordAfterLoad(t *testing.T) {
	now := time.UnixMicro(1_745_000_145_000_000)
	s := New(at(&now, 0))
	bucket := []backend.Policy{by("b", algo.TokenBucket(algo.PerSecond(100), 100))}
	g := backend.Group{Key: "k", Policies: bucket, Cost: 50, Lease: &backend.Lease{ID: backend.LeaseID{1}, Length: time.Hour}}
	ask(t, s, backend.Reserve, g)
	now = now.Add(2 * time.Second) // the bucket is full, and its record is not saved
	into := New(at(&now, 0))
	require.NoError(t, into.Load(bytes.NewReader(saved(t, s))))
	require.Zero(t, into.Len())
	g.Lease = nil
	ask(t, into, backend.Take, g)
	settle := g
	settle.Lease = &backend.Lease{ID: backend.LeaseID{1}, Length: time.Hour}
	ask(t, into, backend.Settle, settle)
	require.Equal(t, int64(50), ask(t, into, backend.Peek, g).Used)
}

// TestManyParts: a stripe with more than a part has is written in several, and all are loaded.
func TestManyParts(t *testing.T) {
	now := time.UnixMicro(1_745_000_145_000_000)
	s := New(at(&now, 40)) // one stripe
	list := []backend.Policy{by("slots", algo.InFlight(100_000))}
	for i := range perPart {
		g := backend.Group{Key: fmt.Sprint(i % 1000), Policies: list, Cost: 1, Lease: &backend.Lease{Length: time.Minute}}
		binary.BigEndian.PutUint64(g.Lease.ID[8:], uint64(i+1))
		ask(t, s, backend.Reserve, g)
	}
	text := saved(t, s)
	require.Greater(t, len(parts(text)), 5)
	into := New(at(&now, 40))
	require.NoError(t, into.Load(bytes.NewReader(text)))
	sound(t, into)
	require.Len(t, into.stripes[0].mu.leases.open.kept, perPart)
	require.Equal(t, s.Len(), into.Len())
}

// broken is a writer or a reader that fails.
type broken struct{}

var errBroken = errors.New("broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }
func (broken) Read([]byte) (int, error)  { return 0, errBroken }

// TestBrokenPipe: an error of the writer or the reader is that of Save or Load.
func TestBrokenPipe(t *testing.T) {
	s := New(nil)
	require.ErrorIs(t, s.Save(broken{}), errBroken)
	err := s.Load(broken{})
	require.ErrorIs(t, err, errBroken)
	var bad *SnapshotError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, Unreadable, bad.Fault)
}

// TestZeroStoreSaves nothing.
func TestZeroStoreSaves(t *testing.T) {
	var s Store
	var invalid *backend.InvalidError
	require.ErrorAs(t, s.Save(&bytes.Buffer{}), &invalid)
	require.ErrorAs(t, s.Load(&bytes.Buffer{}), &invalid)
	_, err := s.Ping(context.Background())
	require.ErrorAs(t, err, &invalid)
}

// TestUnnamedClass: an end without the name of a class that a part counts is no end.
func TestUnnamedClass(t *testing.T) {
	now := time.UnixMicro(1_745_000_145_000_000)
	s := New(at(&now, 1000))
	fill(t, s, 20)
	text := saved(t, s)
	begin := parts(text)[len(parts(text))-2]
	v := saver{store: New(nil), w: &bytes.Buffer{}, parts: int64(len(parts(text)) - 2), saved: now.UnixMicro()}
	v.end()
	refused(t, append(text[:begin:begin], v.text...), &now, Garbled)
}

// released are the requests whose snapshot stands in testdata: each algorithm, a shadow, a class,
// a sub-key, an open lease, a settled one, a tombstone and a loan.
func released(t *testing.T, s *Store) (groups []backend.Group) {
	t.Helper()
	l := algo.PerHour(100)
	list := []backend.Policy{
		by("fixed", algo.FixedWindow(l)), by("sliding", algo.SlidingWindow(l)), by("bucketed", algo.BucketedWindow(l, 6)),
		by("log", algo.SlidingLog(l)), by("compact", algo.CompactLog(l)), by("bucket", algo.TokenBucket(l, 20)),
		by("queue", algo.LeakyQueue(l, 20, time.Minute)), by("civil", algo.Calendar(100, algo.Month(15), time.UTC)),
		by("slots", algo.InFlight(5)), by("shadow", algo.FixedWindow(algo.PerDay(3))),
	}
	list[0].Class, list[9].Shadow = "per address", true
	for i, sub := range []string{"", "4", "", ""} {
		g := backend.Group{Key: fmt.Sprint("key", i), Sub: sub, Policies: list, Cost: 1}
		groups = append(groups, g)
		g.Lease = &backend.Lease{ID: backend.LeaseID{byte(i + 1)}, Length: time.Hour}
		if i < 3 {
			ask(t, s, backend.Reserve, g)
		}
		if i > 0 { // of the last one there is no reservation yet
			_, _ = layer.Ask(context.Background(), s, backend.Request{Op: backend.Settle, Group: g})
		}
	}
	loan := &backend.Loan{ID: backend.LeaseID{9}, Seq: 1, Term: time.Second, Want: 4}
	lends := backend.Group{Key: "key0", Policies: list[:1], Cost: 1}
	require.NoError(t, s.Do(context.Background(), &backend.Request{Op: backend.Borrow, Group: lends, Loan: loan}, new(backend.Decision)))
	return groups
}

// TestReleasedSnapshot: a snapshot has the bytes that it had in the first release, and those bytes
// are read as the same counts.
func TestReleasedSnapshot(t *testing.T) {
	now := time.UnixMicro(1_745_000_145_000_000)
	s := New(at(&now, 1000))
	s.secrets = secretsOf(bytes.Repeat([]byte("headgate"), secretBytes/8))
	groups := released(t, s)
	golden.Equal(t, "snapshot.golden", hex.Dump(saved(t, s)))

	text, err := os.ReadFile("testdata/snapshot.golden")
	require.NoError(t, err)
	var kept []byte
	for line := range strings.Lines(string(text)) {
		columns, _, _ := strings.Cut(line[10:], "|")
		b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(columns), " ", ""))
		require.NoError(t, err)
		kept = append(kept, b...)
	}
	into := New(at(&now, 1000))
	require.NoError(t, into.Load(bytes.NewReader(kept)))
	sound(t, into)
	require.Equal(t, states(t, s, groups), states(t, into, groups))
	var b strings.Builder
	for i, st := range states(t, into, groups) {
		fmt.Fprintf(&b, "%s %s: %d of %d used, %d lent, again in %v, none in %v\n", groups[i/10].Key, st.Policy, st.Used, st.Limit, st.Lent, st.RetryAfter, st.ResetAfter)
	}
	golden.Equal(t, "states.golden", b.String())
	g := groups[0]
	g.Cost, g.Lease = 1, &backend.Lease{ID: backend.LeaseID{1}, Length: time.Hour}
	ask(t, into, backend.Settle, g) // the open lease is known by its ID
}
