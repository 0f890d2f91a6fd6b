package resp

import (
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// throttle makes the limiters of CL.THROTTLE. Clients choose the numbers, so the cache
// is bounded: if it is full it is emptied, and the counts, which are the store's, stay.
type throttle struct {
	opts Options
	mu   struct {
		sync.RWMutex
		limiters map[numbersOfCell]*headgate.Limiter
	}
}

// maxThrottles is the number of limiters that are kept.
const maxThrottles = 1000

// numbersOfCell are the first three arguments after the key.
type numbersOfCell struct{ burst, count, period int64 }

func newThrottle(opts Options) *throttle {
	t := &throttle{opts: opts}
	t.mu.limiters = map[numbersOfCell]*headgate.Limiter{}
	return t
}

func (t *throttle) limiter(n numbersOfCell) (*headgate.Limiter, error) {
	t.mu.RLock()
	l := t.mu.limiters[n]
	t.mu.RUnlock()
	if l != nil {
		return l, nil
	}
	if n.count < 1 || n.period < 1 {
		return nil, fmt.Errorf("a rate of %d per %d s; want at least 1 of both", n.count, n.period)
	}
	if n.period > int64(algo.MaxPeriod/time.Second) || n.burst < 0 || n.burst >= algo.MaxLimit {
		return nil, fmt.Errorf("max_burst %d and period %d; want 0 to %d, and at most %d s", n.burst, n.period, int64(algo.MaxLimit)-1, int64(algo.MaxPeriod/time.Second))
	}
	mode := t.opts.OnFailure
	if mode == 0 {
		mode = headgate.FailClosed
	}
	l, err := t.opts.Base.With(headgate.Policy{Name: "cell", OnFailure: mode, Class: "CL.THROTTLE",
		Algorithm: algo.TokenBucket(algo.Per(n.count, time.Duration(n.period)*time.Second), n.burst+1)})
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.mu.limiters) >= maxThrottles {
		clear(t.mu.limiters)
	}
	t.mu.limiters[n] = l
	return l, nil
}

// cell is CL.THROTTLE: a token bucket of max_burst + 1, which is full at first.
func (s *Server) cell(args []string, r reply) error {
	n, quantity := [4]int64{}, int64(1)
	for i, a := range args[1:] {
		v, err := strconv.ParseInt(a, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is no integer", a)
		}
		n[i] = v
	}
	if len(args) == 5 {
		quantity = n[3]
	}
	if quantity < 0 {
		return fmt.Errorf("a quantity of %d; want at least 0", quantity)
	}
	l, err := s.throttle.limiter(numbersOfCell{n[0], n[1], n[2]})
	if err != nil {
		return err
	}
	d, err := s.throttled(l, args[0], quantity, n[0]+1)
	if err != nil {
		return err
	}
	limited, retry := int64(1), int64(-1)
	if d.Allowed {
		limited = 0
	} else if quantity <= n[0]+1 {
		retry = seconds(d.RetryAfter)
	}
	left, reset := int64(-1), int64(-1)
	//mutant:uncounted-cell
	if d.Known != backend.NotCounted {
		left, reset = d.Remaining, seconds(d.ResetAfter)
	}
	r.array(5)
	for _, v := range []int64{limited, d.Limit, left, retry, reset} {
		r.integer(v)
	}
	return nil
}

// throttled asks for a quantity. One above the bucket's size is denied, and none looks.
func (s *Server) throttled(l *headgate.Limiter, key string, quantity, size int64) (d headgate.Decision, err error) {
	switch {
	case quantity == 0 || quantity > size:
		d, err = l.Peek(s.ctx, headgate.Call{Key: key, Costs: []int64{0}})
		d.Allowed = d.Allowed && quantity == 0
	default:
		d, err = l.AllowN(s.ctx, key, quantity)
	}
	if err == nil && d.Err != nil && s.opts.OnFailure == 0 {
		err = d.Err
	}
	return d, err
}

// seconds are whole ones, and one more if there is a millisecond left.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second >= time.Millisecond && s < math.MaxInt64 {
		s++
	}
	return s
}
