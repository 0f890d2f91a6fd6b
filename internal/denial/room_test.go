package denial

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestRoomsHoldNoKey: what is kept for the next call is not the last one's.
func TestRoomsHoldNoKey(t *testing.T) {
	s := (&fake{do: denies(time.Hour)}).station(Longest)
	ask(t, s, take("k", policies(3), 1))
	require.Zero(t, rooms.Get().(*room).request)
}

// TestNextHasARequestOfItsOwn where the station asks it for more than its caller
// did.
func TestNextHasARequestOfItsOwn(t *testing.T) {
	var each []backend.State
	f := &fake{}
	f.do = func(r *backend.Request) (backend.Decision, error) {
		each = r.Each
		return denies(time.Hour)(r)
	}
	r, d := take("k", policies(3), 1), backend.Decision{}
	require.NoError(t, f.station(Longest).Do(t.Context(), &r, &d))
	require.Len(t, each, 3)
	require.Nil(t, r.Each)
}
