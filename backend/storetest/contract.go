package storetest

// sentence is a case: a sentence of the comment on backend.Store, word by
// word, and what has to hold if it is true.
type sentence struct {
	name     string
	sentence string
	run      func(*probe)
}

var contract = []sentence{
	{"Fits", "A take that fits every policy's limit passes and is charged to every policy.", fits},
	{"CostZero", "A cost of 0 beside another is charged nothing and stores nothing; the policy denies only while more is used than its limit.", costsNothing},
	{"Denied", "A take that one policy has no room for is denied and charges none of them.", deniesAll},
	{"DeniedStores", "A denied take stores nothing.", deniedStores},
	{"Peek", "A peek answers what a take would and stores nothing.", peeks},
	{"Reset", "A reset makes the key as new for the policies it lists, and for no others.", resets},
	{"Name", "A count belongs to a policy's name and its algorithm's Identity: requests that agree on both share it, whatever else they list, and others count apart.", names},
	{"Limit", "A limit that changes counts from the next request on what is already used.", limits},
	{"Keys", "Two keys never share a count, whatever bytes they hold.", keys},
	{"Binds", "A decision's State is the binding policy's: of a denial the longest RetryAfter, of a pass the least Remaining, of equals the first listed.", binds},
	{"Each", "Each is filled with the state of every policy, in the order listed.", fillsEach},
	{"Counted", "Every State of a decision is Counted.", counted},
	{"Remaining", "Remaining is the limit less what is used, on a denial too, and never below zero.", remaining},
	{"RetryAfter", "RetryAfter is exact: after it the same take passes if nobody else took, a microsecond earlier it does not, and on a denial it is never zero.", retryAfter},
	{"ResetAfter", "ResetAfter is exact: after it the key is as new, a microsecond earlier it is not.", resetAfter},
	{"Receipt", "A receipt names its key and, per policy, the instant that the charge counts from, by the store's clock.", charges},
	{"Refused", "A cost no policy could ever grant is ErrNeverAdmissible, and a request out of range an *InvalidError; no count changes.", refuses},
	{"Capabilities", "An operation or a number of keys beyond the store's Capabilities is ErrUnsupported, and no count changes.", capable},
	{"Context", "A context that has ended before anything was sent is its error, and nothing was counted.", ended},
	{"Corrupt", "A value that is not the store's own is a *CorruptError that names the key, and no count changes.", corrupt},
	{"Unavailable", "A store that cannot answer says ErrUnavailable if nothing was counted, and ErrPerhapsCounted if that is not known.", unavailable},
	{"AtMostOnce", "A take is charged at most once, whatever is lost on the way.", atMostOnce},
	{"Expires", "Everything stored expires by itself.", expires},
	{"Close", "After Close every request is ErrClosed.", closed},
	{"Zero", errorsAreZero, failsZero},
	{"Left", requestsAreLeft, leavesRequests},
	{"Kept", nothingIsKept, keepsNothing},
}
