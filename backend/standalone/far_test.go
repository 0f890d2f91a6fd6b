package standalone_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// way is how a client comes to a server: by TLS or not, by Open or with the client of a
// user.
type way struct {
	tls  *tls.Config
	open bool
}

func (w way) String() string {
	name := map[bool]string{true: "TLS", false: "TCP"}[w.tls != nil]
	return name + map[bool]string{true: " Open", false: " NewClient"}[w.open]
}

// ways returns all ways, and the addresses of the server by TCP and by TLS.
func ways(t *testing.T, args ...string) (server *redistest.Server, addr func(way) string, all []way) {
	cert, trusting := redistest.Certificate(t)
	server = redistest.Start(t, append(cert, args...)...)
	secure := server.ListenTLS(t)
	addr = func(w way) string {
		if w.tls != nil {
			return secure
		}
		return server.Addr()
	}
	return server, addr, []way{{trusting, true}, {trusting, false}, {nil, true}, {nil, false}}
}

// store returns a store whose client goes to addr.
func (w way) store(t *testing.T, addr string, o *standalone.Options) backend.Store {
	if !w.open {
		c := redis.NewClient(&redis.Options{Addr: addr, TLSConfig: w.tls})
		t.Cleanup(func() { _ = c.Close() })
		return standalone.New(c, o)
	}
	url := "redis://" + addr
	if w.tls != nil {
		url = "rediss://" + addr + "?skip_verify=true"
	}
	s, err := standalone.Open(url, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// spare is how many connections Open keeps idle.
func (w way) spare() int {
	if w.open {
		return 2
	}
	return 0
}

// far is a lone caller over a link.
type far struct {
	name  string
	trip  time.Duration
	spare int
	relay *redistest.Relay
	store backend.Store
	got   *faulttest.Lone
}

// fars returns a lone caller of each way over each link.
func fars(t *testing.T, o *standalone.Options, trips ...time.Duration) (all []*far) {
	_, addr, ways := ways(t)
	for _, w := range ways {
		for _, trip := range trips {
			f := &far{name: fmt.Sprint(w, " ", trip), trip: trip, spare: w.spare(), relay: redistest.NewRelay(t, addr(w), trip)}
			f.store = w.store(t, f.relay.Addr(), o)
			f.got = faulttest.NewLone(t, f.store)
			all = append(all, f)
		}
	}
	return all
}

// TestLoneFarCaller has one caller, and nothing else, over a link: what it began goes
// on after its budget, so that a later call finds it done. The short run has a longer
// budget and link, since a busy machine adds to both.
func TestLoneFarCaller(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	o, trips, d := &standalone.Options{Budget: 500 * ms}, []time.Duration{200 * ms}, 3*time.Second
	if redistest.Long() {
		o, trips, d = nil, []time.Duration{5 * ms, 25 * ms, 40 * ms, 60 * ms, 80 * ms}, time.Minute
	}
	all := fars(t, o, trips...)
	faulttest.Go(len(all), func(i int) { all[i].got.Run(d, 20*ms) })()
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) { faulttest.RequireFar(t, f.got, f.trip, f.relay.Dialled(), f.spare) })
	}
}

// TestTooFar: a round trip takes longer than the budget. Each call gets the cause, and
// so does Ping; the circuit stays closed. When the link is short again, the store decides.
func TestTooFar(t *testing.T) {
	t.Parallel()
	o, trip := &standalone.Options{Budget: 200 * time.Millisecond}, 230*time.Millisecond
	if redistest.Long() {
		o, trip = nil, 120*time.Millisecond
	}
	all, pings, again := fars(t, o, trip), make([]error, 4), make([]*faulttest.Lone, 4)
	for i, f := range all {
		again[i] = faulttest.NewLone(t, f.store)
	}
	late := redistest.Lateness(t, trip)
	faulttest.Go(len(all), func(i int) {
		f := all[i]
		f.got.Run(2500*time.Millisecond, 20*time.Millisecond)
		_, pings[i] = f.store.(interface {
			Ping(context.Context) ([]string, error)
		}).Ping(context.Background())
		f.relay.SetRoundTrip(0)
		again[i].Run(time.Second, 20*time.Millisecond)
	})()
	soon := 2*trip + late.Max()
	cause := "a round trip takes "
	if redistest.Long() { // a busy machine adds to it
		cause += fmt.Sprintf("%.1s", fmt.Sprint(trip.Milliseconds()))
	}
	for i, f := range all {
		t.Run(f.name, func(t *testing.T) {
			t.Logf("%d perhaps counted, %d openings, %d connections, longest %v", f.got.Perhaps, f.got.Openings, f.relay.Dialled(), f.got.Longest)
			require.ErrorContains(t, f.got.Cause, cause)
			require.ErrorContains(t, pings[i], cause)
			require.LessOrEqual(t, f.got.Perhaps, 1)
			require.Zero(t, f.got.Openings)
			require.LessOrEqual(t, f.relay.Dialled(), f.spare+redistest.Steps(8, 3))
			require.Positive(t, again[i].First)
			require.Less(t, again[i].First, soon, "the link is short again")
		})
	}
}

// TestLoneCallersBegin: a lone caller of a server that is 80 ms away is decided within a second,
// from nothing: in each of 32 rows, by TCP and by TLS. internal/lab/sim tries 1,000 in virtual
// time, each with a round trip that is slow.
func TestLoneCallersBegin(t *testing.T) {
	if !redistest.Long() {
		t.Skip("it is long; internal/lab/sim has a short form")
	}
	const trip = 80 * time.Millisecond
	for range 8 {
		all := fars(t, nil, trip)
		faulttest.Go(len(all), func(i int) { all[i].got.Run(3*time.Second/2, 20*time.Millisecond) })()
		for _, f := range all {
			t.Logf("%s: first decision after %v, then %d of %d", f.name, f.got.First.Round(time.Millisecond), f.got.Decided, f.got.Calls)
			require.Positive(t, f.got.First, "%s: %v", f.name, f.got.Cause)
			require.Less(t, f.got.First, time.Second, "%s: %v", f.name, f.got.Cause)
			require.Zero(t, f.got.Openings)
		}
	}
}
