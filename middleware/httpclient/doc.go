// Package httpclient keeps an HTTP client below the rates of the servers that it calls.
//
// Transport is an http.RoundTripper. It obeys Retry-After and the RateLimit field of any
// server. It obeys the fields of X-RateLimit-Reset, of OpenAI, Anthropic, GitHub, GitLab,
// Discord and others where a denial has no Retry-After. A server that has denied is kept in
// some 300 bytes, one with a policy in some 450 ("go test -run TestScopeMemory -v"). It
// keeps at most 10,000 of them. Package httplimit is the server's side.
package httpclient
