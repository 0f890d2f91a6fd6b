// Package httpclient keeps an HTTP client below the rates of the servers that it calls.
//
// Transport is an http.RoundTripper. It obeys Retry-After and the RateLimit field of any
// server. It obeys the fields of X-RateLimit-Reset, of OpenAI, Anthropic, GitHub, GitLab,
// Discord and others where a denial has no Retry-After. A 429 may show units of every limit
// if the request costs more tokens than remain. Then the shortest reset of a limit of tokens
// counts, if it is at most 30 s. A response that is no denial has no effect by these fields:
// X-RateLimit-Remaining-Tokens and the like pace no request. To stay below a limit of tokens,
// use a headgate.Limiter of your own. Call WaitReserve with an estimate before each request,
// and Commit the tokens that the response names. A server that has denied is kept in
// some 300 bytes, one with a policy in some 450 ("go test -run TestScopeMemory -v"). It
// keeps at most 10,000 of them. Package httplimit is the server's side.
//
// backoff.go decides how long requests are held back: after a denial, and while few units
// of a quota are left. denial.go reads how long a response denies for, and parse.go the
// RateLimit fields. roundtrip.go sends a request, and transport.go has the options.
package httpclient
