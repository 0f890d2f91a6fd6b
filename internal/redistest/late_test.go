package redistest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLateness(t *testing.T) {
	late := Lateness(t, 5*time.Millisecond)
	assert.Eventually(t, func() bool { return late.Max() > 0 }, 10*time.Second, poll)
	assert.LessOrEqual(t, late.P99(), late.Max())
}

func TestLatenessOfWhatIsKnown(t *testing.T) {
	l := &Late{budget: time.Second}
	assert.Zero(t, l.Max())
	assert.Zero(t, l.P99())
	for i := range 200 {
		l.mu.seen = append(l.mu.seen, time.Duration(200-i)*time.Millisecond)
	}
	assert.Equal(t, 200*time.Millisecond, l.Max())
	assert.Equal(t, 198*time.Millisecond, l.P99())

	l.mu.pending = map[int]bare{0: {due: time.Now().Add(-time.Hour)}, 1: {due: time.Now().Add(time.Hour)}}
	assert.GreaterOrEqual(t, l.Max(), time.Hour, "an overdue timer counts before it fires")
	assert.Less(t, l.Max(), 2*time.Hour)
}
