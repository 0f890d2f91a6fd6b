package rule

import (
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// zoneNames are zones whose clocks change at midnight, by half an hour, over the
// date line, never, or by a law that has no end.
var zoneNames = []string{
	"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/St_Johns", "Asia/Amman",
	"Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "America/Havana", "Antarctica/Casey",
}

func zone(t testing.TB, name string) *time.Location {
	z, err := time.LoadLocation(name)
	require.NoError(t, err)
	return z
}

func instant(t testing.TB, s string) int64 {
	at, err := time.Parse(time.RFC3339, s)
	require.NoError(t, err)
	return at.UnixMicro()
}

// TestCivilPeriods: the period that holds an instant, from the papers that changed
// the clocks.
func TestCivilPeriods(t *testing.T) {
	for _, c := range []struct {
		name, zone   string
		every        CivilPeriod
		at, from, to string
	}{
		{"leap February", "UTC", Month(1), "2024-02-29T23:59:59Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"no leap day in 2100", "UTC", Month(1), "2100-02-28T12:00:00Z", "2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z"},
		{"31st in a leap year", "UTC", Month(31), "2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z", "2024-03-31T00:00:00Z"},
		{"31st in January", "UTC", Month(31), "2024-02-28T23:59:59Z", "2024-01-31T00:00:00Z", "2024-02-29T00:00:00Z"},
		{"31st in April", "UTC", Month(31), "2023-05-30T12:00:00Z", "2023-04-30T00:00:00Z", "2023-05-31T00:00:00Z"},
		{"30th in February", "UTC", Month(30), "2023-03-01T00:00:00Z", "2023-02-28T00:00:00Z", "2023-03-30T00:00:00Z"},
		{"29th over a year's end", "UTC", Month(29), "2024-01-28T12:00:00Z", "2023-12-29T00:00:00Z", "2024-01-29T00:00:00Z"},
		{"billing month", "America/New_York", Month(15), "2024-03-20T12:00:00Z", "2024-03-15T00:00:00-04:00", "2024-04-15T00:00:00-04:00"},
		{"week from Monday", "Europe/Berlin", Week(time.Monday), "2024-03-31T20:00:00Z", "2024-03-25T00:00:00+01:00", "2024-04-01T00:00:00+02:00"},
		{"week from Sunday", "Europe/Berlin", Week(time.Sunday), "2024-03-31T20:00:00Z", "2024-03-31T00:00:00+01:00", "2024-04-07T00:00:00+02:00"},
		{"week from Saturday", "UTC", Week(time.Saturday), "1970-01-01T00:00:00Z", "1969-12-27T00:00:00Z", "1970-01-03T00:00:00Z"},
		{"23 hours", "Europe/Berlin", Day(), "2024-03-31T12:00:00Z", "2024-03-31T00:00:00+01:00", "2024-04-01T00:00:00+02:00"},
		{"25 hours", "Europe/Berlin", Day(), "2024-10-27T12:00:00Z", "2024-10-27T00:00:00+02:00", "2024-10-28T00:00:00+01:00"},
		{"half an hour", "Australia/Lord_Howe", Day(), "2024-10-06T00:00:00Z", "2024-10-06T00:00:00+10:30", "2024-10-07T00:00:00+11:00"},
		{"no midnight", "Asia/Amman", Day(), "2021-03-26T12:00:00Z", "2021-03-26T01:00:00+03:00", "2021-03-27T00:00:00+03:00"},
		{"before no midnight", "Asia/Amman", Day(), "2021-03-25T21:59:59Z", "2021-03-25T00:00:00+02:00", "2021-03-25T22:00:00Z"},
		{"two midnights", "Asia/Amman", Day(), "2021-10-28T22:30:00Z", "2021-10-29T00:00:00+03:00", "2021-10-30T00:00:00+02:00"},
		{"between two midnights", "Asia/Amman", Day(), "2021-10-28T21:59:00Z", "2021-10-29T00:00:00+03:00", "2021-10-30T00:00:00+02:00"},
		{"back over midnight", "America/St_Johns", Day(), "2010-11-07T03:00:00Z", "2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30"},
		{"day before the skipped one", "Pacific/Apia", Day(), "2011-12-30T09:59:59Z", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"day after the skipped one", "Pacific/Apia", Day(), "2011-12-30T10:00:00Z", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"},
		{"month from the skipped day", "Pacific/Apia", Month(30), "2011-12-31T00:00:00Z", "2011-12-31T00:00:00+14:00", "2012-01-30T00:00:00+14:00"},
		{"week with the skipped day", "Pacific/Apia", Week(time.Monday), "2011-12-30T09:00:00Z", "2011-12-26T00:00:00-10:00", "2012-01-02T00:00:00+14:00"},
		{"week from the skipped day", "Pacific/Apia", Week(time.Friday), "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2012-01-06T00:00:00+14:00"},
	} {
		a := Calendar(1, c.every, zone(t, c.zone))
		require.NoError(t, a.Check(), c.name)
		from, to := a.civil(instant(t, c.at))
		require.Equal(t, [2]int64{instant(t, c.from), instant(t, c.to)}, [2]int64{from, to},
			"%s: %v to %v", c.name, time.UnixMicro(from).UTC(), time.UnixMicro(to).UTC())
		before, start, length, next := a.boundaries(instant(t, c.at))
		require.Equal(t, []int64{from, to - from}, []int64{start, length})
		_, last := a.civil(to)
		first, _ := a.civil(from - 1)
		require.Equal(t, []int64{from - first, last - to}, []int64{before, next}, c.name)
	}
}

// TestFourCenturies holds every period of 400 years to its definition: it begins
// at the first second at which the clocks show its first day or a later one, ends
// where the next begins, and is as long as Worst takes it to be. Short runs check
// one period in 41.
func TestFourCenturies(t *testing.T) {
	redistest.Plain(t)
	units := []CivilPeriod{Day(), Month(1), Month(31), Month(29), Month(15)}
	for first := time.Sunday; first <= time.Saturday; first++ {
		units = append(units, Week(first))
	}
	for _, name := range zoneNames {
		for _, every := range units {
			a := Calendar(1, every, zone(t, name))
			centuries(t, &a, int64(steps(40, 0))*a.period)
		}
	}
}

func centuries(t *testing.T, a *Algorithm, skip int64) {
	last := time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	for from, to := a.civil(time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()); from < last; {
		number := func(at int64) int64 { return a.every.index(time.UnixMicro(at).In(a.zone).Date()) }
		n := number(from)
		wrong := number(from-1) >= n || number(from-6*3600e6) >= n || number(to) <= n || number(to-1) > n
		wrong = wrong || a.Worst(time.Duration(to-from)*time.Microsecond) < 2 || calendarWorst(a, to-from+2) < 3
		for _, inside := range []int64{from, from + (to-from)/2, to - 1} {
			x, y := a.civil(inside)
			wrong = wrong || x != from || y != to
		}
		if wrong {
			t.Fatalf("%v: %v to %v", a, time.UnixMicro(from).In(a.zone), time.UnixMicro(to).In(a.zone))
		}
		from, to = a.civil(to + skip)
	}
}

// TestCalendarHoldsItsLimit: no civil period holds more, whatever the costs.
func TestCalendarHoldsItsLimit(t *testing.T) {
	redistest.Plain(t)
	for _, name := range zoneNames {
		for _, every := range []CivilPeriod{Day(), Week(time.Wednesday), Month(31)} {
			r := rand.New(rand.NewPCG(1, 2))
			a := Calendar(100, every, zone(t, name))
			w, held, period := make([]int64, a.Words()), int64(0), int64(-1)
			for now := instant(t, "2010-01-01T00:00:00Z"); now < instant(t, "2014-01-01T00:00:00Z"); now += r.Int64N(a.period / 10) {
				from, to := a.civil(now)
				if from != period {
					held, period = 0, from
				}
				v, n := a.View(w, now), 1+r.Int64N(20)
				at := a.RetryAt(w, &v, n)
				if a.Fits(&v, n) {
					held += n
					w = a.Take(w, &v, n)
					at = a.ResetAt(&v)
				}
				if at != to || held > 100 {
					t.Fatalf("%v at %d: until %d, want %d; %d units", &a, now, at, to, held)
				}
			}
		}
	}
}

// TestBoundariesThatDiffer: processes with different time zone data share a count.
// The period that one of them began stands for both, and none is so short that it
// would be a limit more.
func TestBoundariesThatDiffer(t *testing.T) {
	hour := time.Hour.Microseconds()
	for _, apart := range []int{1, -1, 3, 11} {
		r := rand.New(rand.NewPCG(3, uint64(apart+20)))
		x := Calendar(10, Day(), time.FixedZone("Europe/Berlin", 3600))
		y := Calendar(10, Day(), time.FixedZone("Europe/Berlin", 3600+apart*3600))
		require.Equal(t, x.Identity(), y.Identity())
		w, passed, end := make([]int64, x.Words()), int64(0), int64(0)
		const days = 500
		start := instant(t, "2024-01-01T00:00:00Z")
		for now := start; now < start+days*24*hour; now += r.Int64N(hour) {
			a := &x
			if r.IntN(2) == 0 {
				a = &y
			}
			v := a.View(w, now)
			if !a.Fits(&v, 1) {
				require.Equal(t, w[1], a.RetryAt(w, &v, 1))
				continue
			}
			w = a.Take(w, &v, 1)
			passed++
			if w[1] != end {
				require.GreaterOrEqual(t, w[0], end, "the next period begins before the last one ended")
				require.GreaterOrEqual(t, w[1]-w[0], 12*hour, "a period of %v", time.Duration(w[1]-w[0])*time.Microsecond)
				end = w[1]
			}
			require.Greater(t, end, now)
		}
		require.LessOrEqual(t, passed, int64(10*(days+2)), "%d hours apart", apart)
	}
}

// TestCalendarClockSteps: a period that lies at most one ahead stands, what lies
// further ahead counts as absent.
func TestCalendarClockSteps(t *testing.T) {
	a := Calendar(5, Month(1), time.UTC)
	w := make([]int64, a.Words())
	v := a.View(w, instant(t, "2024-03-10T00:00:00Z"))
	w = a.Take(w, &v, 5)
	back := instant(t, "2024-01-30T00:00:00Z") // the 31 days of January before
	v = a.View(w, back)
	require.False(t, a.Fits(&v, 1))
	require.Equal(t, instant(t, "2024-04-01T00:00:00Z"), a.RetryAt(w, &v, 1))
	v = a.View(w, back-1)
	require.True(t, a.Fits(&v, 5))
}

func TestCalendarRefuses(t *testing.T) {
	for what, a := range map[string]Algorithm{
		"limit 0":                                Calendar(0, Day(), time.UTC),
		"calendar period none":                   Calendar(1, CivilPeriod{}, time.UTC),
		"calendar period month from 0":           Calendar(1, Month(0), time.UTC),
		"calendar period month from 32":          Calendar(1, Month(32), time.UTC),
		"calendar period week from %!Weekday(7)": Calendar(1, Week(7), time.UTC),
		"time zone <nil>":                        Calendar(1, Day(), nil),
		`time zone "Local"`:                      Calendar(1, Day(), time.Local),
		`time zone ""`:                           Calendar(1, Day(), time.FixedZone("", 60)),
		`time zone "a{b}"`:                       Calendar(1, Day(), time.FixedZone("a{b}", 60)),
		`time zone "far"`:                        Calendar(1, Day(), time.FixedZone("far", 1e9)),
	} {
		err := a.Check()
		require.ErrorContains(t, err, "headgate: "+what+":")
		require.IsType(t, &InvalidError{}, err)
		require.Zero(t, a.Max())
		require.NotEmpty(t, a.String())
		v := a.View(make([]int64, a.Words()), 5)
		a.RetryAt(nil, &v, 1)
		a.Numbers(5)
	}
	named := time.Local
	defer func() { time.Local = named }()
	time.Local = time.UTC // as many programs do
	a := Calendar(1, Day(), time.UTC)
	require.NoError(t, a.Check())
}

// TestCalendarIsKept where an algorithm is made of another.
func TestCalendarIsKept(t *testing.T) {
	a := Calendar(10, Month(31), zone(t, "America/St_Johns"))
	for _, b := range []Algorithm{a.WithMax(7), a.Part(1, 2), a.Share(1, 2)} {
		require.NoError(t, b.Check())
		from, to := a.civil(1e15)
		x, y := b.civil(1e15)
		require.Equal(t, [2]int64{from, to}, [2]int64{x, y})
	}
	require.Equal(t, "Calendar(10 per month from 31, America/St_Johns)", a.String())
	wide := Widest(a.Identity())
	require.Equal(t, a.Identity(), wide.Identity())
	require.Equal(t, Identity{Kind: KindCalendar, Label: "m31/America/St_Johns"}, wide.Identity())
}

func BenchmarkBoundaries(b *testing.B) {
	for _, name := range []string{"UTC", "Europe/Berlin"} {
		for _, every := range []CivilPeriod{Day(), Month(1)} {
			a := Calendar(10, every, zone(b, name))
			b.Run(name+"/"+every.String(), func(b *testing.B) {
				for i := range b.N {
					a.Numbers(1_790_000_000_000_000 + int64(i))
				}
			})
		}
	}
}

// TestEqual: two locations of one name are one calendar, as they are one count.
func TestEqual(t *testing.T) {
	zone := func(name string) *time.Location { return time.FixedZone(name, 3600) }
	a := Calendar(10, Day(), zone("A"))
	for want, all := range map[bool][]Algorithm{
		true:  {a, Calendar(10, Day(), zone("A"))},
		false: {Calendar(10, Day(), zone("B")), Calendar(11, Day(), zone("A")), Calendar(10, Month(1), zone("A")), FixedWindow(PerDay(10)), {}},
	} {
		for i := range all {
			require.Equal(t, want, a.Equal(&all[i]), all[i].String())
		}
	}
}
