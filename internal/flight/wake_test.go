package flight_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/flight"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asks makes a call of its own, and hands on how it ended.
func asks(q *flight.Queue, ended chan<- error) {
	go func() {
		_, err := q.Ask(context.Background(), "k", 0, take("k"))
		ended <- err
	}()
}

// allAnswered waits for as many as there is room for, half a budget at most.
func allAnswered(t *testing.T, ended <-chan error) {
	t.Helper()
	for range cap(ended) {
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(5 * time.Second):
			require.FailNow(t, "not woken")
		}
	}
}

// TestARoundHoldsUpNobody: a round that waits for one server was answered by
// another meanwhile. Who rides behind it there has its answer too.
func TestARoundHoldsUpNobody(t *testing.T) {
	both(t, func(t *testing.T, apart bool) {
		slow, hold := gated(t, apart)
		quick, g := gated(t, apart)
		fill(t, slow, hold)
		landed := fill(t, quick, g)
		round := make(chan struct{})
		go func() {
			defer close(round)
			flight.DoAll(context.Background(), []flight.Call{
				{Queue: slow, Tag: "k", Request: take("k")},
				{Queue: quick, Tag: "k", Request: take("k")},
			}, make([]backend.Answer, 2))
		}()
		waits(t, quick, 1)
		behind := make(chan error, 3)
		for i := range cap(behind) {
			asks(quick, behind)
			waits(t, quick, 2+i)
		}
		g.open()
		landed()
		allAnswered(t, behind)
		hold.open()
		<-round
	})
}

// TestWhoLeavesWakesOthers: of callers on one key some leave at any instant.
// The others are answered in time, and no two are told the same.
func TestWhoLeavesWakesOthers(t *testing.T) {
	const callers, calls, budget = 64, 300, 10 * time.Second
	q := queue(redistest.Start(t).Client(t), budget)
	many := []backend.Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.Per(1<<30, algo.MaxPeriod)), OnFailure: backend.FailClosed}}
	var told sync.Map
	ask := func(ctx context.Context) error {
		r := take("k")
		r.Policies = many
		d, err := q.Ask(ctx, "k", 0, r)
		if err == nil {
			_, twice := told.LoadOrStore(d.Used, true)
			assert.False(t, twice, "two calls were told %d", d.Used)
		}
		return err
	}
	over, stop := context.WithCancel(context.Background())
	var patient, others sync.WaitGroup
	for range callers {
		patient.Add(1)
		others.Add(1)
		go func() {
			defer patient.Done()
			for range calls {
				begin := time.Now()
				assert.NoError(t, ask(context.Background()))
				assert.Less(t, time.Since(begin), budget/2)
			}
		}()
		go func() {
			defer others.Done()
			for over.Err() == nil {
				ctx, leave := context.WithTimeout(over, time.Duration(rand.IntN(1000))*time.Microsecond)
				_ = ask(ctx)
				leave()
			}
		}()
	}
	all := make(chan struct{})
	go func() { patient.Wait(); close(all) }()
	select {
	case <-all:
	case <-time.After(60 * time.Second):
		require.FailNow(t, "somebody was not told")
	}
	stop()
	others.Wait()
}

// panicky is a context of a caller's own make.
type panicky struct{ context.Context }

func (panicky) Done() <-chan struct{} { panic("of the caller's own") }

// TestWhoPanicsHarmsNobody: a caller whose context panics was neither to wake
// others nor to make a flight.
func TestWhoPanicsHarmsNobody(t *testing.T) {
	both(t, func(t *testing.T, apart bool) {
		q, g := gated(t, apart)
		panics := func() {
			assert.Panics(t, func() { _, _ = q.Ask(panicky{context.Background()}, "k", 0, take("k")) })
			assert.Panics(t, func() {
				flight.DoAll(panicky{context.Background()}, []flight.Call{{Queue: q, Tag: "k", Request: take("k")}}, make([]backend.Answer, 1))
			})
		}
		for range flight.Out {
			panics() // with a flight's place to lose
		}
		landed := fill(t, q, g)
		panics() // ahead of others
		behind := make(chan error, 3)
		for range cap(behind) {
			asks(q, behind)
		}
		waits(t, q, cap(behind))
		g.open()
		landed()
		allAnswered(t, behind)
	})
}
