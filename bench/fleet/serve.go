package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/peers"
)

// fillers is the number of callers that fill the keys: enough for full batches.
// More would only wait for redis_rate's pool.
const fillers = 64

// Serve is a child's whole life: it carries out the order that it reads, and
// writes what it counted. It waits between warm-up and measurement, so that all
// processes measure at once.
func Serve(in io.Reader, out io.Writer) error {
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	var o Order
	if err := orders.Decode(&o); err != nil {
		return err
	}
	s, err := o.subject()
	if err != nil {
		return err
	}
	defer s.Close()
	keys := load.Named(o.Keys, o.N)
	if o.Fill {
		if err := load.Fill(fillers, keys, s.Fill); err != nil {
			return err
		}
	}
	sample := load.Closed{Callers: o.Callers, For: o.For, Between: func() {
		var begin bool
		if err = answers.Encode(true); err == nil {
			err = orders.Decode(&begin)
		}
	}}.Run(keys, s.Allow)
	if err != nil {
		return err
	}
	return answers.Encode(Result{sample.Count, sample.Took})
}

// subject makes the limiter that the order names, with a client of its own: in
// a fleet no two processes share one.
func (o Order) subject() (*peers.Subject, error) {
	if len(o.Addrs) == 0 {
		return nil, fmt.Errorf("an order without addresses")
	}
	dial := peers.Own(o.Addrs[0])
	ours, theirs := peers.Headgate(dial, o.Policies), peers.RedisRate(dial)
	if o.Cluster {
		ours, theirs = peers.HeadgateCluster(o.Addrs), peers.RedisRateCluster(o.Addrs)
	}
	for _, m := range []peers.Maker{ours, theirs, peers.RedisRatePipelined(dial), peers.Borrowing(dial, 50*time.Millisecond), peers.Borrowing(dial, 500*time.Millisecond)} {
		if m.Name == o.Subject {
			return m.Make(peers.Roomy)
		}
	}
	return nil, fmt.Errorf("no subject is called %q", o.Subject)
}
