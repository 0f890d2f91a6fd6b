package backend

// Op is what a request asks of a store.
type Op uint8

// The operations. The zero Op is none of them and refused.
const (
	Take    Op = iota + 1 // charge the costs if they fit, all or nothing
	Peek                  // answer what Take would; write nothing
	AtMost                // in an event only: a Take of a run UpTo
	Settle                // replace what Request.Lease charged by what was used, and end the lease
	Reset                 // forget the listed policies' counts for the key
	Reserve               // charge as Take does, and keep Request.Lease
	Extend                // move the end of Request.Lease
	Record                // charge what has happened already, above the limit if need be
	Borrow                // charge as Take does, settle and lend what Request.Loan says
	Return                // take the costs out of what is counted, the newest first
)

// property is something that is true of some operations. Layers and stores go by the
// properties of an operation, so that a new one is a row of verbs.
type property uint16

const (
	charges property = 1 << iota // a request that passes is charged its costs
	decides                      // the answer is to pass or to be denied, by the room that there is
	known                        // a remembered denial of the key may answer it
	keys                         // a request may have several keys, all or nothing
	firsts                       // a request may have several alternatives, each of one key or more
	runs                         // those of one key that wait together are one group of a batch
	opens                        // Request.Lease is opened
	held                         // Request.Lease is what is decided, and the costs are not
	ends                         // that lease ends
	returns                      // the costs are taken out of what is counted
	above                        // a count may be raised above its limit
	fails                        // a failure mode may answer it
	free                         // it may cost nothing
	spreads                      // its key may be spread over sub-keys
)

// verbs has a row for each operation: its name and its properties. A request that a row
// has no property for is ErrUnsupported or an *InvalidError.
var verbs = [...]struct {
	name string
	has  property
}{
	0:       {"none", 0},
	Take:    {"take", charges | decides | known | keys | firsts | runs | fails | spreads},
	Peek:    {"peek", decides | keys | firsts | runs | fails | free | spreads},
	AtMost:  {"at_most", charges | decides},
	Settle:  {"settle", held | ends | above | firsts},
	Reset:   {"reset", runs | spreads},
	Reserve: {"reserve", charges | decides | known | keys | firsts | opens | fails},
	Extend:  {"extend", held},
	//mutant:record-has-no-mode
	Record: {"record", charges | above},
	Borrow: {"borrow", charges | decides | fails | free | spreads},
	Return: {"return", returns},
}

// has reports whether the operation has one of the properties.
func (o Op) has(p property) bool { return int(o) < len(verbs) && verbs[o].has&p != 0 }

// String returns the operation's name.
func (o Op) String() string {
	if int(o) >= len(verbs) {
		return "unknown"
	}
	return verbs[o].name
}

// Charges reports whether a request that passes is charged its costs.
func (o Op) Charges() bool { return o.has(charges) }

// Decides reports whether the answer is to pass or to be denied, by the room that there is.
func (o Op) Decides() bool { return o.has(decides) }

// Records reports whether an operation charges what has happened already: it always passes.
func (o Op) Records() bool { return o.has(charges) && !o.has(decides) }

// Costs reports whether the costs of a request are what is decided.
func (o Op) Costs() bool { return o.has(charges | decides | returns) }

// Returns reports whether the costs of a request are taken out of what is counted: it always
// passes.
func (o Op) Returns() bool { return o.has(returns) }

// Known reports whether a remembered denial of the key may answer the request.
func (o Op) Known() bool { return o.has(known) }

// Runs reports whether requests of one key and one list that wait together may be decided
// as one group.
func (o Op) Runs() bool { return o.has(runs) }

// Leases reports whether a request has a Lease: it opens one, or concerns one.
func (o Op) Leases() bool { return o.has(opens | held) }

// Opens reports whether a request opens its Lease.
func (o Op) Opens() bool { return o.has(opens) }

// Held reports whether a request concerns a Lease that is open already. Its costs are the
// estimates, and charge nothing.
func (o Op) Held() bool { return o.has(held) }

// Ends reports whether a request ends its Lease.
func (o Op) Ends() bool { return o.has(ends) }

// Raises reports whether a request may raise a count.
func (o Op) Raises() bool { return o.has(charges | above) }

// Fails reports whether a failure mode may answer the request if no store decides.
func (o Op) Fails() bool { return o.has(fails) }
