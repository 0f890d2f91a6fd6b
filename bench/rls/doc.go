// Package rls compares cmd/headgated with the service that it replaces,
// github.com/envoyproxy/ratelimit: the same requests to both, each on a Redis of its own.
// Nothing of that service is in this repository. Its sources, and the YAML files of its
// tests, come from the module proxy, and it runs as a process.
//
//	go test ./... -reference                  # a glance: some thousand requests
//	go test ./... -reference -requests 100000 # what docs/server.md has
//	go test ./... -reference -run Cost -cost  # processor time per request, beside a tuned one and a plain one
package rls
