SHELL := bash

.PHONY: test deps

# All that a change has to pass. Needs Go; deps sees to the rest.
test: deps
	go vet ./...
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || \
		{ echo "FAIL: run gofmt -w on:" $$unformatted >&2; exit 1; }
	go test -race -timeout 20m ./...
	@echo "PASS: vet, gofmt, and all tests under the race detector"

deps:
	@.ci/deps
