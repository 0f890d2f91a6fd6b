package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// leased is what leases prints of a key.
type leased struct {
	Key    callerKey `json:"key"`
	Leases []lease   `json:"leases"`
}

// lease is a reservation that is not settled.
type lease struct {
	ID      string   `json:"id"`        // cut
	Length  int64    `json:"length_us"` // 0: this release can't read the lease
	Ends    int64    `json:"ends_us"`   // not above 0: it has ended, and can still be settled
	Charges []charge `json:"charges,omitempty"`
}

// charge is what a lease was charged by one policy.
type charge struct {
	Policy    string `json:"policy"`
	Algorithm string `json:"algorithm"`
	Units     int64  `json:"units"`
}

// leases prints the reservations of a key that are not settled.
func leases(ctx context.Context, s *session, args []string) error {
	store, err := s.inspected(ctx)
	if err != nil {
		return err
	}
	stored, err := store.Leases(ctx, args[0])
	if err != nil && len(stored) == 0 { // a node without an answer may have some
		return err
	}
	all := leased{Key: callerKey(args[0]), Leases: []lease{}}
	for _, l := range stored {
		row := lease{ID: l.ID.Short(), Length: micros(l.Length), Ends: micros(l.Ends)}
		for i := range l.Policies {
			p := &l.Policies[i]
			row.Charges = append(row.Charges, charge{p.Name, p.Algorithm.Kind().String(), l.Costs[i]})
		}
		all.Leases = append(all.Leases, row)
	}
	return errors.Join(s.print(all, all.text), err)
}

// resetsAll follows a list of leases: there is no command for one of them.
const resetsAll = "each ends by itself; headgate reset ends all leases of the key now, also those of jobs that run, and removes its counts"

// text tells leases that run from those that have ended, whose process has died or has
// not settled yet.
func (l *leased) text(w *tabwriter.Writer) {
	if len(l.Leases) == 0 {
		fmt.Fprintf(w, "%s has no open lease\n", printable(string(l.Key)))
		return
	}
	fmt.Fprintf(w, "%s has open leases: %d\n", printable(string(l.Key)), len(l.Leases))
	row(w, "LEASE", "ENDS IN", "LENGTH", "CHARGED")
	for _, l := range l.Leases {
		ends := "has ended"
		if l.Ends > 0 {
			ends = duration(l.Ends).Round(time.Millisecond).String()
		}
		if l.Length == 0 {
			ends = "not known to this release"
		}
		row(w, l.ID, ends, duration(l.Length), l.charged())
	}
	fmt.Fprintln(w, resetsAll)
}

func (l *lease) charged() string {
	var words []string
	for _, c := range l.Charges {
		words = append(words, fmt.Sprint(c.Policy, " ", c.Units))
	}
	return strings.Join(words, ", ")
}

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
