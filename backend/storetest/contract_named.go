package storetest

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// named stands behind the case Return.
var named = []sentence{
	{"Named", callersID, "A Reserve under a Named ID is ErrHeld while its lease is open, moves its end and charges nothing; by another list or other costs it is an *InvalidError. " +
		"After a Settle the ID is reserved anew, but not by a Reserve whose Attempt is not later."},
}

// job is a reservation under an ID of the caller's.
type job struct {
	*probe
	group backend.Group
	lease backend.Lease
	sent  uint64 // the last attempt
}

// do sends an operation of the job, by an attempt that is so much later than the last one.
func (j *job) do(op backend.Op, later uint64, actual []int64) (backend.Decision, error) {
	j.sent += later
	l := j.lease
	binary.BigEndian.PutUint64(l.Attempt[:], j.sent)
	l.Actual = actual
	g := j.group
	g.Lease = &l
	return j.send(context.Background(), backend.Request{Op: op, Group: g})
}

// must requires an error of an operation, nil for none, and what is used afterwards.
func (j *job) must(what string, err, want error, used int64) {
	j.t.Helper()
	if !errors.Is(err, want) || err != nil && want == nil {
		j.probe.must(false, "%s returns %v, want %v", what, err, want)
	}
	j.used(j.group.Key, j.group.Policies, used)
}

func callersID(p *probe) {
	p.needsOp(backend.Reserve)
	list := p.carried(p.list(p.day(10))...)
	j := &job{probe: p, group: group("job", list, 4), lease: backend.Lease{ID: p.newID(), Length: 10 * sec, Named: true}, sent: 1000}
	for _, op := range []backend.Op{backend.Settle, backend.Extend} {
		_, err := j.do(op, 1, nil)
		j.must("never seen: "+op.String(), err, backend.ErrNotHeld, 0)
	}
	d, err := j.do(backend.Reserve, 1, nil)
	p.must(d.Allowed && err == nil, "the first Reserve: %+v, %v", d, err)
	_, err = j.do(backend.Reserve, 1, nil)
	j.must("open: the same Reserve", err, backend.ErrHeld, 4)
	j.otherwise(list)
	_, err = j.do(backend.Extend, 1, nil)
	j.must("open: Extend", err, nil, 4)
	_, err = j.do(backend.Settle, 1, p.actual(list, 3))
	j.must("open: Commit", err, nil, 3)
	_, err = j.do(backend.Settle, 0, p.actual(list, 3))
	j.must("settled: the same Commit", err, nil, 3)
	for _, op := range []backend.Op{backend.Settle, backend.Extend} {
		_, err = j.do(op, 1, nil)
		j.must("settled: "+op.String(), err, backend.ErrNotHeld, 3)
	}
	j.sent -= 3
	_, err = j.do(backend.Reserve, 0, nil)
	j.must("settled: a delayed Reserve", err, backend.ErrNotHeld, 3)
	j.sent += 3
	d, err = j.do(backend.Reserve, 1, nil)
	p.must(d.Allowed && err == nil, "settled: a Reserve: %+v, %v", d, err)
	j.used("job", list, 3+4)
	_, err = j.do(backend.Settle, 1, nil)
	j.must("open: Cancel", err, nil, 3)
	j.ends(list)
}

// otherwise reserves under the job's ID by another list and other costs.
func (j *job) otherwise(list []backend.Policy) {
	for _, other := range []backend.Group{group("job", list, 5), group("job", j.carried(policy("another", algo.FixedWindow(j.day(10)))), 4)} {
		own := j.group
		j.group = other
		_, err := j.do(backend.Reserve, 1, nil)
		j.group = own
		j.probe.must(errors.As(err, new(*backend.InvalidError)), "open: a Reserve of %d units by %d policies returns %v", other.Cost, len(other.Policies), err)
		j.used("job", list, 4)
	}
}

// ends lets the job's lease end: an ended one is reserved anew, and settled for one length more.
func (j *job) ends(list []backend.Policy) {
	if j.SetNow == nil {
		return
	}
	j.reset("job", list)
	if _, err := j.do(backend.Reserve, 1, nil); err != nil {
		j.probe.must(false, "after a Reset: %v", err)
	}
	j.advance(9 * sec)
	_, err := j.do(backend.Reserve, 1, nil)
	j.must("open: the same Reserve", err, backend.ErrHeld, 4)
	j.advance(9 * sec)
	_, err = j.do(backend.Extend, 1, nil)
	j.must("open: an Extend after the first end", err, nil, 4)
	j.advance(11 * sec)
	_, err = j.do(backend.Extend, 1, nil)
	j.must("ended: Extend", err, backend.ErrLeaseEnded, 4)
	d, err := j.do(backend.Reserve, 1, nil)
	j.probe.must(d.Allowed && err == nil, "ended: a Reserve: %+v, %v", d, err)
	j.used("job", list, 8)
	j.advance(11 * sec)
	_, err = j.do(backend.Settle, 1, nil)
	j.must("ended: Cancel", err, nil, 4)
}

// actual is n units of each policy.
func (p *probe) actual(list []backend.Policy, n int64) (all []int64) {
	for range list {
		all = append(all, n)
	}
	return all
}
