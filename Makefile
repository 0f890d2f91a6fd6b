SHELL := bash

.PHONY: release test test-long test-bench test-modules test-reference test-servers servers bench twins sim server-cost memory failover hotkeys compose-test page-test mutants lint house deps

# The race detector sleeps for a second at the end of a process otherwise.
export GORACE := atexit_sleep_ms=0

# Tests that run without the race detector, which skips them: most have one goroutine, in
# which it finds nothing, and it makes them some times as slow. A test in internal/arch
# holds both lists complete.
PLAIN_TESTS := TestSeeds TestLoneCallers TestLongLogsReturn TestSuiteWhole TestSuiteAlone TestSuiteThroughBreaker TestSuiteOnACluster TestTwins TestTwinsWhole TestTwinsOnAServer TestLeaseTwins TestLoanTwins TestKeysTwins TestFirstTwins TestFirstRandom \
	TestCompactLogBlocksThatGaveBack TestCompactLogIsASlidingLog TestCompactLogBytes TestCompactLogGarbage TestCompactLogNumbersGoOn TestCalendarZones \
	TestLeaseBytes TestMemoryComesBack TestBounded TestWhatIsKnownIsBoundedInBytes TestSharesAreSpentAlike TestBorrowFigures TestBorrowIsFair TestBorrowOfALog TestBorrowOfALongTerm \
	TestReference TestSpreadReference TestTwiceTheLimit TestBoundedPolicies \
	TestCalendarHoldsItsLimit TestFourCenturies TestGarbledByte TestPartsSumExactly TestGiveBackIsExact \
	TestQueueIsLimitReq TestLentEndsAreFew TestHashOfLikeTexts TestNeighbours TestLeastRights TestNodeAnswersAsAServer \
	TestFailover TestRaces TestRacesAlone TestSlots TestScriptFlush TestScriptFlushAlone TestFleet TestBorrowIsNeverOver \
	TestWrongStoresFail TestBudgets TestLowEstimates TestFlood TestFloodIsFound TestFirstFloors TestPairs \
	TestBorrowOverAVirtualLink TestNamesOfMutants TestNamesInDocs TestStaleNames TestOwnClientsPrintNothing \
	TestHigherCost TestStandsAsTheStore TestStarvedFleet TestFloods TestAfterAFlood TestOverflowRecordsLeave TestRandomClasses TestDeniesOnlyWhatHasNoRoom TestSlotsLieEvenly TestRivals
PLAIN_PACKAGES := ./internal/lab/sim ./. ./algo/rule ./middleware/httpclient ./backend/standalone ./backend/cluster ./backend/memory ./backend/storetest ./internal/denial ./internal/topkeys ./internal/wait ./examples/llm ./shard
SIM := ./internal/lab/sim
empty :=
space := $(empty) $(empty)

# All that a change has to pass, in some minutes on two cores. Needs Go; deps
# sees to the rest. vet reads what the tests compile, so nothing is compiled twice.
# The longest tests begin first: the others fill the second core until they end.
test: deps
	go mod tidy -diff
	go vet -race ./...
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || \
		{ echo "FAIL: run gofmt -w on:" $$unformatted >&2; exit 1; }
	@.ci/mutants -n
	go test -race -vet=off -p 3 -timeout 10m ./backend/cluster ./backend/standalone ./. ./shard ./breaker ./...
	@$(MAKE) --no-print-directory -j 3 -O test-plain test-bench test-modules test-newest
	@echo "PASS: vet, gofmt, and all tests, under the race detector or, if they are listed, without it"

.PHONY: test-plain
test-plain: deps
	go test -vet=off -p 2 -run '^($(subst $(space),|,$(strip $(PLAIN_TESTS))))$$' $(filter-out $(SIM),$(PLAIN_PACKAGES))
	go test -vet=off -tags invariants -run '^($(subst $(space),|,$(strip $(PLAIN_TESTS))))$$' $(SIM)
	cd backend/postgres && go test -vet=off -run '^Test(Suite|Twins|TablesDoNotGrow)$$' ./...

# The same tests at full length: a million steps, medians of five. One package at
# a time and without -race, since ratios of speed are held to their bars here. CI
# runs it each night.
test-long: deps
	HEADGATE_LONG=1 go test -p 1 -count=1 -timeout 30m $$(go list ./... | grep -v lab/sim)
	HEADGATE_LONG=1 go test -tags invariants -count=1 -timeout 30m $(SIM)
	cd backend/postgres && HEADGATE_LONG=1 go test -count=1 -timeout 60m ./...
	cd internal/linearize && HEADGATE_LONG=1 go test -count=1 -timeout 30m ./...

# Redis 7.0, 8.0 and the newest, Valkey 8 and the newest, built from Debian's
# sources and kept outside of the tree. Needs a C compiler and a Debian mirror.
servers:
	@.ci/servers

# What depends on the server, on each server that `make servers` keeps, with a
# table of results. Takes some 8 minutes per server. make servers comes first.
test-servers: deps
	@.ci/test-servers

# The benchmark is a module of its own, which `./...` leaves out: that its peers
# still limit, and that every workload still runs, in small. Without -race,
# since its figures are what it is for.
test-bench: deps
	cd bench && go vet ./... && go test -vet=off -p 1 -timeout 10m ./...
	cd bench/http && go vet ./... && go test -vet=off ./...

# The modules beside the core, which `./...` leaves out: each has a go.mod so that
# what it needs is no dependency of the core.
MODULES := $(patsubst %/go.mod,%,$(shell git ls-files '*/go.mod' ':!bench'))
.PHONY: $(MODULES)
test-modules: $(MODULES)
$(MODULES): deps
	cd $@ && go mod tidy -diff && go vet -race ./... && go test -race -vet=off -p 2 -timeout 10m ./...

# What depends on the client, on the newest go-redis: .ci/newest.mod is go.mod with that.
.PHONY: test-newest
test-newest: deps
	go mod tidy -diff -modfile=.ci/newest.mod
	go test -modfile=.ci/newest.mod -vet=off ./backend/internal/client
	go test -modfile=.ci/newest.mod -vet=off -run '^Test(AtMostOnce|LostReplies|DeadConnections|HooksOfTheClientRun|MadeClientIsClosed)' ./backend/standalone

# Headgate against its peers, in one run of some 14 minutes on an idle machine:
# writes docs/benchmarks.md.
bench: deps
	cd bench && go run .

# A fleet, its servers and its clock from one seed, on all cores: see internal/lab/sim.
# SEEDS and FROM say which. SHAPE gives all runs one shape, such as a lone process that
# runs for hours: SHAPE="-procs 1 -lasts 4h".
SEEDS ?= 2000
FROM ?= 1
sim:
	go test -tags invariants ./internal/lab/sim -count=1 -run '^TestSeeds$$' -seeds $(SEEDS) -from $(FROM) $(SHAPE) -timeout 60m

# Old faults, put back one at a time: the first seed that finds each. Some 10 minutes.
.PHONY: sim-faults
sim-faults:
	@.ci/sim-faults

# A million random steps, and a million over all operations, Go against Lua on a
# real Redis, every field equal.
twins: deps
	HEADGATE_LONG=1 go test ./backend/standalone -count=1 -run '^Test(Lease)?Twins$$' -timeout 30m -v

# The server's CPU a decision, against a script that does TIME + GET + SET PX.
server-cost: deps
	go test ./backend/standalone -count=1 -run '^TestServerCost(OfFirst)?$$|^TestLoanCost$$|^TestAlgorithmCost$$|^TestCompactLog(Cost|AtOnce)$$|^Test(LeaseCost|SettleCostOfALongLog|LeaseMemory|LeasesLeave)$$' -servercost -timeout 30m -v

# What keys take in Redis, by algorithm, limit and calls: writes docs/memory.md.
memory: deps
	go test ./backend/standalone -count=1 -run '^TestMemory$$' -memory -timeout 30m -v

# A primary killed, frozen, taken over, under load from four processes, medians
# of five beside a control: what its keys and the other nodes' meet.
failover: deps
	HEADGATE_LONG=1 go test ./backend/cluster -count=1 -run '^TestFailover$$' -timeout 30m -v

# Keys spread over a cluster: the limit, wrong denials, commands, nodes, a
# primary killed. Writes docs/hotkeys.md and docs/hotkeys.svg.
hotkeys: deps
	go test ./shard -count=1 -run '^TestHotKeys$$' -hotkeys -timeout 40m -v

# headgated beside envoyproxy/ratelimit, which is built from the module proxy: 100,000
# random requests to both, each on a Redis of its own, then processor time per request.
test-reference: deps
	cd bench/rls && go test ./... -count=1 -run 'TestEqual|TestLateHits|TestEnvironments|TestRefused' -reference -requests 100000 -timeout 30m -v
	cd bench/rls && go test ./... -count=1 -run TestCost -reference -cost -timeout 30m -v

# The compose file as a user meets it: up, used, a primary killed, used, down.
compose-test: deps
	.ci/compose-test

# The live page and a replay's report in Chromium: two widths, light and dark, with script
# and without. Writes screenshots to HEADGATE_SCREENSHOTS, or to a temporary folder that it names.
page-test:
	@CI= .ci/deps browser
	cd internal/lab/browser && go vet ./... && go test -count=1 -v ./...

# Staticcheck and errcheck over all modules, pinned versions that no go.mod has. Not part
# of test: after a change they take longer than seconds. CI runs them on the newest Go.
# .ci/errcheck has the functions whose errors say nothing: Close of what is no longer used,
# and what prints for a reader.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ERRCHECK := github.com/kisielk/errcheck@v1.30.0
lint:
	@for m in $$(git ls-files '*go.mod' | xargs -n1 dirname); do \
		echo "staticcheck and errcheck $$m"; \
		(cd $$m && go run $(STATICCHECK) -checks 'all,-ST1000,-ST1003,-QF*' ./...) || failed=1; \
		(cd $$m && go run $(ERRCHECK) -exclude $(CURDIR)/.ci/errcheck ./...) || failed=1; \
	done; test -z "$$failed"

# Takes the guards out one by one: a test must fail without each.
mutants: deps
	.ci/mutants

# The shape of the code in figures, each with its limit.
house:
	@go test ./internal/arch -count=1 -run '^TestHouse$$' -house -v

deps:
	@.ci/deps

# What a tag of every module would give a user, from a module proxy made of this commit. It
# pushes nothing.
release:
	@.ci/release $(VERSION)
