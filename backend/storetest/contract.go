package storetest

import "testing"

// sentence is a case: a sentence of the comment on backend.Store, word by
// word, and the function that checks it.
type sentence struct {
	name     string
	run      func(*probe)
	sentence string
}

// contract stands in the order of the comment on backend.Store. A test holds
// the two lists equal, so a new promise without a case fails the build.
var contract = []sentence{
	{"Fits", fits, "A take that fits every policy's limit passes and is charged to every policy."},
	{"CostZero", costsNothing, "A cost of 0 beside another is charged nothing and stores nothing; " +
		"the policy denies only while more is used than its limit."},
	{"Denied", deniesAll, "A take that one policy has no room for is denied and charges none of them."},
	{"DeniedStores", deniedStores, "A denied take stores nothing."},
	{"Peek", peeks, "A peek answers what a take would and stores nothing."},
	{"Reset", resets, "A reset makes the key as new for the policies it lists, and for no others."},
	{"Name", names, "A count belongs to a policy's name and its algorithm's Identity: " +
		"requests that agree on both share it, whatever else they list, and others count apart."},
	{"Limit", limits, "A limit that changes counts from the next request on what is already used."},
	{"Keys", keys, "Two keys never share a count, whatever bytes they hold."},
	{"Binds", binds, "A decision's State is the binding policy's: of a denial the longest RetryAfter, " +
		"of a pass the least Remaining, of equals the first listed."},
	{"Each", fillsEach, "Each is filled with the state of every policy, in the order listed."},
	{"Counted", counted, "Every State of a decision is Counted."},
	{"Remaining", remaining, "Remaining is the limit less what is used, on a denial too, and never below zero."},
	{"RetryAfter", retryAfter, "RetryAfter is exact: after it the same take passes if nobody else took, " +
		"a microsecond earlier it does not, and on a denial it is never zero."},
	{"ResetAfter", resetAfter, "ResetAfter is exact: after it the key is as new, a microsecond earlier it is not."},
	{"Receipt", charges, "A receipt names its key and, per policy, the instant that the charge counts from, " +
		"by the store's clock."},
	{"Refused", refuses, "A cost no policy could ever grant is ErrNeverAdmissible, " +
		"and a request out of range an *InvalidError; no count changes."},
	{"Capabilities", capable, "An operation or a number of keys beyond the store's Capabilities is ErrUnsupported, " +
		"and no count changes."},
	{"Context", ended, "A context that has ended before anything was sent is its error, and nothing was counted."},
	{"Corrupt", corrupt, "A value that is not the store's own is a *CorruptError that names the key, " +
		"and no count changes."},
	{"Unavailable", unavailable, "A store that cannot answer says ErrUnavailable if nothing was counted, " +
		"and ErrPerhapsCounted if that is not known."},
	{"AtMostOnce", atMostOnce, "A take is charged at most once, whatever is lost on the way."},
	{"Expires", expires, "Everything stored expires by itself."},
	{"Close", closed, "After Close every request is ErrClosed."},
	{"Zero", failsZero, errorsAreZero},
	{"Left", leavesRequests, requestsAreLeft},
	{"Kept", keepsNothing, nothingIsKept},
}

// Contract runs a case for each sentence of the comment on backend.Store, on
// each algorithm alone and on all of them in one list. Of the hooks only
// Corrupt, LoseReply, Refuse and Expiries serve a sentence alone: without them
// Corrupt, Unavailable, AtMostOnce and Expires are skipped. RetryAfter and
// ResetAfter need SetNow. Where Expiries is nil the other cases still compare
// counts, but can't see an entry that a denial or a peek leaves behind.
func Contract(t *testing.T, h Harness) {
	h.cases(t, contract)
	h.cases(t, leased)
}

func (h Harness) cases(t *testing.T, cases []sentence) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { h.each(t, c.sentence, c.run) })
	}
}
