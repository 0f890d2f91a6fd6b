package arch

import (
	"slices"
	"strings"
)

const module = "github.com/headgate-go/headgate"

// A row says what a package may import of ours. A new folder has to be entered
// here: that is the moment to decide where it stands.
type row struct {
	pkg    string   // relative to the module, "." for the root; "x/..." is x and all below it
	may    []string // the same; public stands for all but internal
	reason string   // said when the row is broken
}

const public = "public"

var table = []row{
	{"lua", nil,
		"lua is the scripts' text and nothing else, so that whatever runs scripts can have it"},
	{"internal/slot", nil,
		"slot computes tags and their CRC16 and needs no word of ours"},
	{"internal/without", nil,
		"takes a match or a password off an error and knows none"},
	{"internal/listed", nil,
		"listed finds names in lists, and needs no word of ours"},
	{"internal/invariant", nil,
		"invariant is a check that tests turn on, and needs no word of ours"},
	{"internal/chance", nil,
		"chance is math/rand/v2 with a seam for the simulator, and needs no word of ours"},
	{"internal/nodes", nil,
		"nodes reads what a flag names, whatever it is for, and needs no word of ours"},
	{"internal/file", nil,
		"file reads what a flag names, whatever it is for, and needs no word of ours"},
	{"algo", []string{"algo/rule"}, "the page for users: it makes algorithms, and decides nothing"},
	{"algo/rule", []string{"lua"},
		"an algorithm is pure: it knows its twin's script by name, and no backend, no wrapper, no clock"},
	{"backend", []string{"algo/rule", "internal/without"},
		"backend is the contract between layers; if it knew one of them, all would depend on that one"},
	{"internal/layer", []string{"backend"},
		"layer has the words that only our own layers and stores exchange, and no layer"},
	{"backend/internal/names", []string{"backend", "algo/rule", "internal/slot"},
		"what is stored has one place that names it, and no part in how it is sent"},
	{"backend/internal/client", []string{"backend", "internal/without"},
		"a go-redis client is set up without a word of what it sends"},
	{"backend/internal/wire", []string{"backend", "algo/rule", "backend/internal/names"},
		"wire is the script's format and does no I/O: who sends it, and where, is none of its business"},
	{"backend/internal/batch", []string{"backend", "algo/rule", "lua", "backend/internal/names", "backend/internal/client", "backend/internal/wire", "internal/chance", "internal/layer", "internal/starved", "internal/without", "internal/invariant"},
		"the machinery serves the backends and must not know which of them it serves"},
	{"internal/denial", []string{"backend", "algo/rule", "lua", "internal/layer"},
		"the deny cache answers in the contract's words, before any other layer is asked"},
	{"internal/event", []string{"backend"},
		"an event is worked out of a request and its decision: who observes it is the root's"},
	{"internal/settlement", []string{"backend", "internal/free", "internal/layer"},
		"settlements are kept by the words of a lease: the limiter that sends them is given"},
	{"internal/token", nil,
		"a token's text is bytes, whatever limiter made it: which policies it stands for is the root's to say"},
	{"internal/wait", []string{"backend", "algo/rule", "internal/invariant"},
		"queues order calls and are given the function that takes: what decides it, a limiter or several, is its caller's"},
	{"internal/starved", nil,
		"whether a processor is free is the kernel's to say, and needs no word of ours"},
	{"internal/topkeys", nil,
		"topkeys counts keys, whatever they stand for, and needs no word of ours"},
	{"internal/adapter", []string{"backend", "internal/joint", "internal/topkeys"},
		"an adapter's view of a limiter has the contract's words: the root gives it, so it can't know the root"},
	{"internal/oracle", []string{"backend", "algo", "algo/rule", "lua"},
		"the oracle judges every store alike, so it must not know one"},
	{"internal/trace", []string{"backend", "algo", "algo/rule", "lua", "internal/layer"},
		"traces hold both renderings equal and belong to no backend"},
	{"backend/internal/record", []string{"algo/rule"},
		"a key's record is bytes: in which file or table they stand is the store's"},
	{"backend/internal/rows", []string{"backend"},
		"rows are decided by the words of the contract: how is the memory store's, and where they stand another store's"},
	{"backend/memory", []string{"backend", "algo/rule", "backend/internal/record", "backend/internal/rows", "internal/layer", "internal/invariant"},
		"memory runs the Go rendering: no script, no Redis, no other backend"},
	{"backend/internal/inspect", []string{"backend", "algo/rule", "backend/internal/names", "internal/layer", "internal/without"},
		"inspect asks servers with plain commands: an operator's look is no call, and needs no batch"},
	{"backend/standalone", []string{"backend", "algo/rule", "lua", "backend/internal/names", "backend/internal/client", "backend/internal/batch", "backend/internal/inspect", "internal/layer"},
		"a backend runs one rendering and knows neither another backend nor the layers above it"},
	{"backend/cluster", []string{"backend", "algo/rule", "lua", "backend/internal/names", "backend/internal/client", "backend/internal/batch", "backend/internal/inspect", "internal/slot", "internal/chance", "internal/layer", "internal/starved", "internal/without"},
		"a backend runs one rendering and knows neither another backend nor the layers above it"},
	{"backend/postgres", []string{"backend", "backend/memory", "backend/internal/rows", "internal/layer", "internal/without"},
		"the rows of a database are decided by the Go rendering: no script, no Redis, no rule of an algorithm"},
	{"breaker", []string{"backend", "algo/rule", "internal/chance", "internal/layer", "internal/invariant"},
		"breaker is a store over any store; what is hot and how it is split is none of its business"},
	{"shard", []string{"backend", "algo/rule", "internal/chance", "internal/slot", "internal/denial", "internal/layer"},
		"shard is a store over any store; what fails and what follows from it is none of its business"},
	{"internal/borrow", []string{"backend", "internal/layer", "internal/invariant"},
		"borrow is a store over any store: it spends what that lends, and counts nothing itself"},
	{"internal/joint", []string{"backend", "internal/layer", "internal/settlement"},
		"joint is a store over any store: it asks key by key, and what answers a key is none of its business"},
	{"internal/free", []string{"backend", "internal/layer"},
		"free is a store over any store: what decides the keys that cost something is none of its business"},
	{"backend/storetest", []string{"backend", "algo", "algo/rule", "internal/oracle", "internal/trace"},
		"the suite tests a store by its contract; with a store's own package at hand it would test that one"},
	{".", []string{"backend", "algo", "algo/rule", "internal/borrow", "breaker", "shard", "backend/memory", "internal/adapter", "internal/denial", "internal/event", "internal/free", "internal/joint", "internal/layer", "internal/listed", "internal/settlement", "internal/token", "internal/wait"},
		"the root puts layers together over a store that it is given: a user of memory must not link a cluster client (memory itself is there for FailLocal)"},
	{"middleware/...", []string{".", "backend", "algo", "algo/rule", "internal/adapter", "internal/listed", "internal/topkeys", "middleware/internal/..."},
		"a middleware turns a decision into a header, a status or a metric: it needs the limiter, its words and the numbers of its policies"},
	{"policyfile", []string{".", "algo", "algo/rule", "backend", "backend/memory", "internal/adapter", "internal/file", "internal/listed"},
		"a policy file holds policies and algorithms, and makes limiters on a store; memory is there to check them without one"},
	{"compat/...", []string{".", "algo", "algo/rule", "backend", "backend/standalone", "backend/cluster"},
		"another library's API is on what users hold: it makes the store of the client that it is given"},
	{"cmd/headgate/internal/logs", []string{"backend", "middleware/httplimit"},
		"logs reads calls of files: what limits them is the replay's to say; a client's address counts as in middleware"},
	{"cmd/headgate/internal/replay", []string{public, "cmd/headgate/internal/logs"},
		"a replay decides the calls of a log by a policy file, as a service with shadows could"},
	{"cmd/headgate/internal/advise", []string{"algo", "cmd/headgate/internal/logs"},
		"advice tries limits on the calls of a log, by the algorithms' rules alone: keys are independent, so it needs no store"},
	{"cmd/headgate/internal/page", []string{"cmd/headgate/internal/replay"},
		"a page shows the report of a replay, as the terminal does"},
	{"cmd/headgate", []string{public, "internal/adapter", "internal/file", "internal/nodes", "internal/without", "cmd/headgate/internal/advise", "cmd/headgate/internal/logs", "cmd/headgate/internal/page", "cmd/headgate/internal/replay"},
		"the command shows what a store keeps and what a limiter answers, as any user of the library could; it shares how files are read"},
	{"cmd/headgated/...", []string{public, "internal/adapter", "internal/file", "internal/nodes", "cmd/headgated/internal/limits", "cmd/headgated/internal/rls", "cmd/headgated/internal/resp", "cmd/headgated/internal/unknown", "cmd/headgated/internal/bounded"},
		"the server turns a protocol into calls of limiters, as any user of the library could; it shares how files are read"},
	{"examples/...", []string{public},
		"an example shows what users can write, and users can't import internal"},
	{"docs/...", []string{public},
		"what the documents show is what users can write, and users can't import internal"},
	{"bench/...", []string{public, "internal/lab/redistest", "internal/lab/..."},
		"a benchmark measures what users hold; of the machinery it may only have a server started"},
	{"internal/lab/clock", nil,
		"a client with a clock of its own needs no word of ours"},
	{"internal/lab/redistest", nil,
		"redistest is below everything that is tested with it"},
	{"internal/lab/faulttest", []string{".", "backend", "internal/layer", "algo", "algo/rule", "internal/oracle", "internal/lab/redistest"},
		"what every store on Redis must show is said once, without knowing one of them"},
	{"internal/lab/...", []string{public, "internal/chance", "internal/layer", "internal/slot"},
		"the laboratory drives what users hold, and reads the wire by its description; tests and bench alone import it"},
	{"internal/arch", nil,
		"arch reads the source, it doesn't run it"},
}

// find returns the row of a package; false if it was never entered.
func find(pkg string) (row, bool) {
	i := slices.IndexFunc(table, func(r row) bool { return matches(r.pkg, pkg) })
	if i < 0 {
		return row{}, false
	}
	return table[i], true
}

func (r row) allows(pkg string) bool {
	return slices.ContainsFunc(r.may, func(may string) bool {
		return matches(may, pkg) || may == public && isPublic(pkg)
	})
}

func matches(pattern, pkg string) bool {
	root, below := strings.CutSuffix(pattern, "/...")
	return pkg == root || below && strings.HasPrefix(pkg, root+"/")
}

func isPublic(pkg string) bool { return !slices.Contains(strings.Split(pkg, "/"), "internal") }
